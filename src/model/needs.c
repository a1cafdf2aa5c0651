/*
 * needs.c - see needs.h. A field of the configuration that uses an optional op is asked about here.
 */
#include "model/needs.h"

#include "base/error.h"
#include "model/config.h"
#include "model/feed_forward.h"

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

/* What makes attention another than the paper's, for an error; NULL: nothing. */
static const char *attention_form(const struct heed_config *c)
{
    if (c->attention == HEED_ATTENTION_WINDOW) return "attention 'window'";
    if (c->attention == HEED_ATTENTION_ADDITIVE) return "attention 'additive'";
    if (c->position == HEED_POSITION_RELATIVE) return "position 'relative'";
    if (c->position == HEED_POSITION_ALIBI) return "position 'alibi'";
    return NULL;
}

/* HEED_EUNSUPPORTED where the table lacks an op that a kind named in the configuration needs. */
static enum heed_status check_kinds(const struct ops *op, const struct heed_config *c, bool train,
                                    struct heed_error *err)
{
    bool pre = c->norm == HEED_NORM_PRE, gated = feed_forward_gated(c);
    bool rope = c->position == HEED_POSITION_ROPE, linear = config_linear(c);
    bool moe = config_experts(c) > 0;
    const struct {
        const char *name;
        bool present, needed;
        const char *by; /* what needs it */
    } ops[] = {
        {"add", op->add != NULL, pre, "norm 'pre'"},
        {"norm", op->norm != NULL, pre, "norm 'pre'"},
        {"add_bwd", op->add_bwd != NULL, pre && train, "norm 'pre'"},
        {"norm_bwd", op->norm_bwd != NULL, pre && train, "norm 'pre'"},
        {"rotate", op->rotate != NULL, rope, "position 'rope'"},
        {"attend_linear", op->attend_linear != NULL, linear, "attention 'linear'"},
        {"attend_linear_bwd", op->attend_linear_bwd != NULL, linear && train, "attention 'linear'"},
        {"linear_state", op->linear_state != NULL, linear && !train, "attention 'linear'"},
        {"attend_state", op->attend_state != NULL, linear && !train, "attention 'linear'"},
        {"gate", op->gate != NULL, gated, "activation 'swiglu'"},
        {"gate_bwd", op->gate_bwd != NULL, gated && train, "activation 'swiglu'"},
        {"route", op->route != NULL, moe, "ff 'moe'"},
        {"dispatch", op->dispatch != NULL, moe, "ff 'moe'"},
        {"experts_linear", op->experts_linear != NULL, moe, "ff 'moe'"},
        {"combine", op->combine != NULL, moe, "ff 'moe'"},
        {"experts_linear_bwd", op->experts_linear_bwd != NULL, moe && train, "ff 'moe'"},
        {"route_bwd", op->route_bwd != NULL, moe && train, "ff 'moe'"},
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (ops[i].needed && !ops[i].present)
            return error_set(err, HEED_EUNSUPPORTED,
                             "device '%s' lacks the op %s, which the model needs for its %s",
                             op->name, ops[i].name, ops[i].by);
    return HEED_OK;
}

enum heed_status needs_check(const struct ops *op, const struct heed_config *c, bool train,
                             struct heed_error *err)
{
    if ((int)config_activation(c) >= op->activations)
        return error_set(err, HEED_EUNSUPPORTED,
                         "device '%s' cannot compute the activation '%s', which the model's "
                         "configuration names",
                         op->name, config_activation_name(c));
    if (!op->attend_forms && attention_form(c))
        return error_set(err, HEED_EUNSUPPORTED,
                         "device '%s' cannot compute the %s of the model's configuration", op->name,
                         attention_form(c));
    const char *missing = train ? missing_for_training(op, c) : NULL;
    if (missing)
        return error_set(err, HEED_EUNSUPPORTED,
                         "device '%s' cannot train a model: it lacks the op %s", op->name, missing);
    return check_kinds(op, c, train, err);
}
