/*
 * needs.c - see needs.h. A field of the configuration that uses an optional op is asked about here.
 */
#include "model/needs.h"

#include "base/error.h"
#include "model/config.h"

/* The first op of training that the table lacks, or NULL. */
static const char *missing_for_training(const struct ops *op, const struct heed_config *c)
{
    const struct {
        const char *name;
        bool present;
    } ops[] = {
        {"embed_bwd", op->embed_bwd != NULL},   {"linear_bwd", op->linear_bwd != NULL},
        {"attend_bwd", op->attend_bwd != NULL}, {"add_norm_bwd", op->add_norm_bwd != NULL},
        {"sqnorm", op->sqnorm != NULL},         {"adam", op->adam != NULL},
        {"bias_bwd", op->bias_bwd || !c->bias},
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!ops[i].present) return ops[i].name;
    return NULL;
}

enum heed_status needs_check(const struct ops *op, const struct heed_config *c, bool train,
                             struct heed_error *err)
{
    if ((int)config_activation(c) >= op->activations)
        return error_set(err, HEED_EUNSUPPORTED,
                         "device '%s' cannot compute the activation '%s', which the model's "
                         "configuration names",
                         op->name, config_activation_name(c));
    const char *missing = train ? missing_for_training(op, c) : NULL;
    if (missing)
        return error_set(err, HEED_EUNSUPPORTED,
                         "device '%s' cannot train a model: it lacks the op %s", op->name, missing);
    return HEED_OK;
}
