/*
 * needs.c - see needs.h. A field of the configuration that uses an optional op is asked about here.
 */
#include "model/needs.h"

#include <string.h>

#include "base/error.h"
#include "model/config.h"

/* The ops that only training uses. */
static const struct {
    const char *name;
    size_t at;
} TRAINING[] = {
#define OP(name)                                                                                   \
    {                                                                                              \
#name, offsetof(struct ops, name)                                                          \
    }
    OP(embed_bwd), OP(linear_bwd), OP(attend_bwd), OP(add_norm_bwd), OP(sqnorm), OP(adam),
#undef OP
};

static bool op_present(const struct ops *op, size_t at)
{
    void (*f)(void);
    memcpy(&f, (const char *)op + at, sizeof f);
    return f != NULL;
}

enum heed_status needs_check(const struct ops *op, const struct heed_config *c, bool train,
                             struct heed_error *err)
{
    if ((int)config_activation(c) >= op->activations)
        return error_set(err, HEED_EUNSUPPORTED,
                         "device '%s' cannot compute the activation '%s', which the model's "
                         "configuration names",
                         op->name, config_activation_name(c));
    for (size_t i = 0; train && i < sizeof TRAINING / sizeof *TRAINING; i++)
        if (!op_present(op, TRAINING[i].at))
            return error_set(err, HEED_EUNSUPPORTED,
                             "device '%s' cannot train a model: it lacks the op %s", op->name,
                             TRAINING[i].name);
    return HEED_OK;
}
