/*
 * test_needs.c - a device that lacks an optional op, or an activation, says so in a sentence when a
 * model that needs it is opened.
 */
#include "model/needs.h"
#include "toy.h"

/* A backend whose table can be changed. */
struct lacking {
    struct backend *be;
    struct ops op;
};

static struct lacking lacking_open(void)
{
    struct lacking l;
    struct heed_error err = {0};
    assert_int_equal(ref_open(&l.be, &err), HEED_OK);
    l.op = *l.be->op;
    l.op.name = "toy";
    return l;
}

static enum heed_status check(const struct ops *op, bool train, struct heed_error *err)
{
    *err = (struct heed_error){0};
    return needs_check(op, &toy_config, train, err);
}

static void test_nothing_lacks(void **state)
{
    (void)state;
    struct heed_error err;
    struct lacking l = lacking_open();
    assert_int_equal(check(&l.op, true, &err), HEED_OK);
    assert_int_equal(check(&l.op, false, &err), HEED_OK);
    l.be->op->close(l.be);
}

/* Each op of backward and of the optimizer in turn: translation does not need it. */
static void test_training(void **state)
{
    (void)state;
    struct heed_error err;
    struct lacking l = lacking_open();
    struct ops whole = l.op;
#define LACKS(which)                                                                               \
    l.op = whole, l.op.which = NULL;                                                               \
    assert_int_equal(check(&l.op, false, &err), HEED_OK);                                          \
    assert_int_equal(check(&l.op, true, &err), HEED_EUNSUPPORTED);                                 \
    assert_string_equal(err.text, "device 'toy' cannot train a model: it lacks the op " #which)
    LACKS(embed_bwd);
    LACKS(linear_bwd);
    LACKS(attend_bwd);
    LACKS(add_norm_bwd);
    LACKS(sqnorm);
    LACKS(adam);
    l.op = whole, l.op.bias_bwd = NULL; /* the paper's form does not need it */
    assert_int_equal(check(&l.op, true, &err), HEED_OK);
    struct heed_config biased = toy_config;
    biased.bias = true;
    assert_int_equal(needs_check(&l.op, &biased, false, &err), HEED_OK);
    assert_int_equal(needs_check(&l.op, &biased, true, &err), HEED_EUNSUPPORTED);
    assert_string_equal(err.text, "device 'toy' cannot train a model: it lacks the op bias_bwd");
    l.be->op->close(l.be);
}

/* Ops that only one kind needs, and only in training. */
static void test_kinds(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct lacking l = lacking_open();
    struct heed_config c = toy_config;
    l.op.norm_bwd = NULL;
    assert_int_equal(needs_check(&l.op, &c, true, &err), HEED_OK);
    c.norm = HEED_NORM_PRE;
    assert_int_equal(needs_check(&l.op, &c, false, &err), HEED_OK);
    assert_int_equal(needs_check(&l.op, &c, true, &err), HEED_EUNSUPPORTED);
    assert_string_equal(err.text, "device 'toy' lacks the op norm_bwd, which the model needs for "
                                  "its norm 'pre'");
    c = toy_config;
    l.op.rotate = NULL;
    assert_int_equal(needs_check(&l.op, &c, true, &err), HEED_OK);
    c.position = HEED_POSITION_ROPE;
    assert_int_equal(needs_check(&l.op, &c, false, &err), HEED_EUNSUPPORTED);
    assert_string_equal(err.text, "device 'toy' lacks the op rotate, which the model needs for its "
                                  "position 'rope'");
    c = toy_config;
    l.op.gate_bwd = NULL;
    assert_int_equal(needs_check(&l.op, &c, true, &err), HEED_OK);
    c.activation = HEED_ACTIVATION_SWIGLU;
    assert_int_equal(needs_check(&l.op, &c, false, &err), HEED_OK);
    assert_int_equal(needs_check(&l.op, &c, true, &err), HEED_EUNSUPPORTED);
    assert_string_equal(err.text, "device 'toy' lacks the op gate_bwd, which the model needs for "
                                  "its activation 'swiglu'");
    c = toy_config;
    l.op.route_bwd = NULL;
    assert_int_equal(needs_check(&l.op, &c, true, &err), HEED_OK);
    c.ff = HEED_FF_MOE;
    assert_int_equal(needs_check(&l.op, &c, false, &err), HEED_OK);
    assert_int_equal(needs_check(&l.op, &c, true, &err), HEED_EUNSUPPORTED);
    assert_string_equal(err.text, "device 'toy' lacks the op route_bwd, which the model needs for "
                                  "its ff 'moe'");
    c = toy_config;
    c.activation = HEED_ACTIVATION_SWIGLU;
    l.op.gate = NULL;
    assert_int_equal(needs_check(&l.op, &c, false, &err), HEED_EUNSUPPORTED);
    assert_string_equal(err.text, "device 'toy' lacks the op gate, which the model needs for its "
                                  "activation 'swiglu'");
    c = toy_config;
    l.op.attend_linear_bwd = NULL, l.op.attend_state = NULL;
    assert_int_equal(needs_check(&l.op, &c, true, &err), HEED_OK);
    c.attention = HEED_ATTENTION_LINEAR;
    assert_int_equal(needs_check(&l.op, &c, true, &err), HEED_EUNSUPPORTED);
    assert_string_equal(err.text, "device 'toy' lacks the op attend_linear_bwd, which the model "
                                  "needs for its attention 'linear'");
    assert_int_equal(needs_check(&l.op, &c, false, &err), HEED_EUNSUPPORTED);
    assert_string_equal(err.text, "device 'toy' lacks the op attend_state, which the model needs "
                                  "for its attention 'linear'");
    l.be->op->close(l.be);
}

/* Where a program meets it: parameters and runs are not opened. */
static void test_opening(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct parameters *p = NULL;
    struct run *run = NULL;
    struct run_options o = {.rows_src = 16, .rows_tgt = 16, .sentences = 1, .train = true};
    struct lacking l = lacking_open();
    struct backend own = *l.be, *be = l.be;
    be->op = &l.op;

    l.op.activations = ACT_RELU;
    const char *want = "device 'toy' cannot compute the activation 'relu', which the model's "
                       "configuration names";
    assert_int_equal(parameters_open(&p, be, &toy_config, precision_f32, &err), HEED_EUNSUPPORTED);
    assert_string_equal(err.text, want);
    err = (struct heed_error){0};
    assert_int_equal(parameters_open_packed(&p, be, &toy_config, TYPE_PACKED_F32, &err),
                     HEED_EUNSUPPORTED);
    assert_string_equal(err.text, want);
    assert_null(p);

    l.op.activations = ACT_KINDS, l.op.linear_bwd = NULL;
    assert_int_equal(parameters_open(&p, be, &toy_config, precision_f32, &err), HEED_OK);
    assert_int_equal(run_open(&run, be, p, &o, &err), HEED_EUNSUPPORTED);
    assert_string_equal(err.text, "device 'toy' cannot train a model: it lacks the op linear_bwd");
    assert_null(run);
    parameters_free(p);
    *be = own;
    be->op->close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_lacks),
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_opening),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
