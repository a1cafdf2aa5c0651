/*
 * test_config.c - presets, the checks, the table of fields, and config.json there and back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/random.h"
#include "model/config.h"

#define assert_says(err, words)                                                                    \
    do {                                                                                           \
        if (!strstr((err).text, words))                                                            \
            fail_msg("the sentence \"%s\" lacks \"%s\"", (err).text, words);                       \
    } while (0)

static struct heed_config preset(const char *name)
{
    struct heed_config c;
    struct heed_error err;
    assert_int_equal(heed_config_preset(&c, name, &err), HEED_OK);
    assert_int_equal(c.vocab_size, 0);
    c.vocab_size = 8000;
    return c;
}

static void test_presets(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int d_model, d_ff, heads, layers;
        float dropout;
    } table[] = {
        {"tiny", 128, 256, 4, 4, 0.1f},
        {"small", 256, 1024, 4, 3, 0.1f},
        {"base", 512, 2048, 8, 6, 0.1f},
        {"big", 1024, 4096, 16, 6, 0.3f},
    };
    struct heed_error err;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct heed_config c = preset(table[i].name);
        const struct heed_config want = {.d_model = table[i].d_model,
                                         .d_ff = table[i].d_ff,
                                         .heads = table[i].heads,
                                         .encoder_layers = table[i].layers,
                                         .decoder_layers = table[i].layers,
                                         .vocab_size = 8000,
                                         .max_length = 512,
                                         .dropout = table[i].dropout,
                                         .attention_dropout = 0.1f,
                                         .ff_dropout = 0.1f,
                                         .norm = HEED_NORM_POST,
                                         .activation = HEED_ACTIVATION_RELU,
                                         .position = HEED_POSITION_SINUSOID,
                                         .window = 64,
                                         .tie = HEED_TIE_ALL};
        assert_int_equal(config_same(&c, &want, "x", &err), HEED_OK);
        assert_int_equal(config_check(&c, &err), HEED_OK);
    }
    struct heed_config c = preset("tiny");
    assert_int_equal(heed_config_preset(&c, "huge", &err), HEED_EARG);
    assert_string_equal(err.text, "preset is \"huge\", expected tiny, small, base or big");
    assert_int_equal(c.d_model, 128);
}

static void test_text(void **state)
{
    (void)state;
    struct heed_config c = preset("big");
    c.attention_dropout = 0.1234567f; /* nine digits would be 0.123456702 */
    c.ff_dropout = 0;
    char *text = config_format(&c);
    assert_string_equal(text, "{\n"
                              "  \"model_type\": \"heed\",\n"
                              "  \"format\": 2,\n"
                              "  \"d_model\": 1024,\n"
                              "  \"d_ff\": 4096,\n"
                              "  \"heads\": 16,\n"
                              "  \"encoder_layers\": 6,\n"
                              "  \"decoder_layers\": 6,\n"
                              "  \"vocab_size\": 8000,\n"
                              "  \"max_length\": 512,\n"
                              "  \"dropout\": 0.3,\n"
                              "  \"attention_dropout\": 0.1234567,\n"
                              "  \"ff_dropout\": 0.0,\n"
                              "  \"norm\": \"post\",\n"
                              "  \"activation\": \"relu\",\n"
                              "  \"position\": \"sinusoid\",\n"
                              "  \"attention\": \"full\",\n"
                              "  \"window\": 64,\n"
                              "  \"global\": 0,\n"
                              "  \"bias\": false,\n"
                              "  \"tie\": \"all\",\n"
                              "  \"kv_heads\": 0,\n"
                              "  \"d_k\": 0,\n"
                              "  \"d_v\": 0,\n"
                              "  \"recompute\": \"none\",\n"
                              "  \"ff\": \"dense\",\n"
                              "  \"experts\": 0,\n"
                              "  \"experts_per_token\": 0\n"
                              "}\n");
    free(text);
}

/* config.json as it was written before it had a format number, to the byte. */
static const char format_1[] = "{\n"
                               "  \"model_type\": \"heed\",\n"
                               "  \"d_model\": 384,\n"
                               "  \"d_ff\": 1536,\n"
                               "  \"heads\": 6,\n"
                               "  \"encoder_layers\": 6,\n"
                               "  \"decoder_layers\": 5,\n"
                               "  \"vocab_size\": 24000,\n"
                               "  \"max_length\": 256,\n"
                               "  \"dropout\": 0.2,\n"
                               "  \"attention_dropout\": 0.1,\n"
                               "  \"ff_dropout\": 0.15\n"
                               "}\n";

/* What format 1 could not say is the paper's form. */
static void test_format_1(void **state)
{
    (void)state;
    static const struct heed_config want = {.d_model = 384,
                                            .d_ff = 1536,
                                            .heads = 6,
                                            .encoder_layers = 6,
                                            .decoder_layers = 5,
                                            .vocab_size = 24000,
                                            .max_length = 256,
                                            .dropout = 0.2f,
                                            .attention_dropout = 0.1f,
                                            .ff_dropout = 0.15f,
                                            .norm = HEED_NORM_POST,
                                            .activation = HEED_ACTIVATION_RELU,
                                            .position = HEED_POSITION_SINUSOID,
                                            .window = 64,
                                            .tie = HEED_TIE_ALL};
    struct heed_config c;
    struct heed_error err = {0};
    memset(&c, 0x5a, sizeof c);
    assert_int_equal(config_parse(&c, format_1, sizeof format_1 - 1, "x", &err), HEED_OK);
    assert_int_equal(config_same(&c, &want, "x", &err), HEED_OK);
}

static void assert_survives(float rate)
{
    struct heed_config c = preset("base"), back;
    struct heed_error err = {0};
    c.dropout = rate;
    char *text = config_format(&c);
    assert_int_equal(config_parse(&back, text, strlen(text), "x", &err), HEED_OK);
    assert_memory_equal(&back.dropout, &rate, sizeof rate);
    assert_int_equal(config_same(&back, &c, "x", &err), HEED_OK);
    free(text);
}

static void test_rates_survive(void **state)
{
    (void)state;
    uint64_t seed = 7;
    assert_survives(0);
    assert_survives(nextafterf(1, 0));
    assert_survives(0x1p-149f);
    assert_survives(1.0f / 3);
    for (int i = 0; i < 2000; i++) {
        /* any bit pattern below that of 1.0 */
        uint32_t bits = (uint32_t)random_below(&seed, 0x3f800000);
        float rate;
        memcpy(&rate, &bits, sizeof rate);
        assert_survives(rate);
    }
}

/* In a German locale printf writes decimal commas, but config.json has points. Skipped where the
 * system has no such locale. */
static void test_locale(void **state)
{
    (void)state;
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) skip();
    struct heed_config c = preset("base");
    char *text = config_format(&c);
    assert_non_null(strstr(text, "\"dropout\": 0.1,"));
    free(text);
    assert_survives(0.15f);
    setlocale(LC_NUMERIC, "C");
}

/* The text of a good config with one piece of it replaced. */
static enum heed_status parse_with(const char *old, const char *new, struct heed_config *out,
                                   struct heed_error *err)
{
    struct heed_config c = preset("base");
    char *text = config_format(&c), changed[4096];
    char *at = strstr(text, old);
    assert_non_null(at);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    free(text);
    return config_parse(out, changed, strlen(changed), "dir/config.json", err);
}

static void test_rope_needs_even_heads(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct heed_config c = preset("base");
    c.d_model = 72; /* 8 heads of 9 */
    assert_int_equal(config_check(&c, &err), HEED_OK);
    c.position = HEED_POSITION_ROPE;
    assert_int_equal(config_check(&c, &err), HEED_EARG);
    assert_string_equal(err.text, "position is rope and d_k is 9, expected an even number (rope "
                                  "rotates pairs of numbers)");
}

static void test_parse_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *old, *new, *words;
    } table[] = {
        {"{", "", "not valid JSON"},
        {"\"heads\": 8,", "\"heads\": 8, \"heads\": 8,", "duplicate"},
        {"\"heed\"", "\"marian\"", "\"model_type\" is \"marian\", expected \"heed\""},
        {"\"heed\"", "3", "key \"model_type\" is missing or not a string"},
        {"\"heads\": 8,", "", "key \"heads\" is missing"},
        {"\"heads\": 8", "\"heads\": \"8\"", "\"heads\" is not a whole number"},
        {"\"heads\": 8", "\"heads\": 8.0", "\"heads\" is not a whole number"},
        {"\"heads\": 8", "\"heads\": 0", "heads is '0', expected a whole number from 1 to 1024"},
        {"\"heads\": 8", "\"heads\": 7", "d_model is 512, expected a multiple of the 7 heads"},
        {"\"d_model\": 512", "\"d_model\": 16384", "a head is 2048 wide with 8 heads"},
        {"\"d_model\": 512", "\"d_model\": 4294967808",
         "d_model is '4294967808', expected a whole number from 1 to"},
        {"\"d_model\": 512", "\"d_model\": 9223372036854775808", "not valid JSON"},
        {"\"dropout\": 0.1", "\"dropout\": null", "\"dropout\" is not a number"},
        {"\"dropout\": 0.1", "\"dropout\": 1", "dropout is '1', expected a number of at least 0"},
        {"\"dropout\": 0.1", "\"dropout\": 0.99999999999",
         "dropout is '0.99999999999', expected a number of at least 0"},
        {"\"dropout\": 0.1", "\"dropout\": 1e300",
         "dropout is '1e+300', expected a number of at least 0"},
        {"\"dropout\": 0.1", "\"dropout\": -0.1",
         "dropout is '-0.1', expected a number of at least 0"},
        {"8000", "16777217",
         "vocab_size is '16777217', expected a whole number from 1 to 16777216"},
        {"8000", "4194304", "the number of parameters is 21"},
        {"\"max_length\": 512", "\"max_length\": 1",
         "max_length is '1', expected a whole number from 2 to 1048576"},
        {"\"format\": 2", "\"format\": 3",
         "\"format\" is 3, expected 1 to 2: a newer version of heed wrote this file"},
        {"\"format\": 2", "\"format\": 0", "\"format\" is 0, expected 1 to 2"},
        {"\"format\": 2", "\"format\": \"2\"", "\"format\" is not a whole number"},
        {"\"heads\"", "\"new\": [1], \"heads\"",
         "key \"new\" is unknown (this program reads formats up to 2)"},
        {"\"heads\"", "\"max_lenght\": 3, \"heads\"",
         "key \"max_lenght\" is unknown; did you mean max_length? "
         "(this program reads formats up to 2)"},
        {"\"norm\": \"post\"", "\"norm\": \"sandwich\"",
         "norm is 'sandwich', expected post or pre (this program reads formats up to 2)"},
        {"\"activation\": \"relu\"", "\"activation\": \"relux\"",
         "did you mean relu? (this program reads formats up to 2)"},
        {"\"position\": \"sinusoid\"", "\"position\": 1", "\"position\" is not a string"},
        {"\"bias\": false", "\"bias\": 1", "\"bias\" is not true or false"},
        {"\"attention\": \"full\"", "\"attention\": \"fulll\"",
         "attention is 'fulll', expected full, window, additive or linear; did you mean full?"},
        {"\"attention\": \"full\",\n  \"window\": 64",
         "\"attention\": \"window\",\n  \"window\": 0",
         "window is 0 and attention is window, expected at least 1"},
        {"\"window\": 64", "\"window\": 8",
         "window is 8 and attention is full, expected attention window"},
        {"\"global\": 0", "\"global\": 1",
         "global is 1 and attention is full, expected attention window"},
        {"\"position\": \"sinusoid\",\n  \"attention\": \"full\"",
         "\"position\": \"relative\",\n  \"attention\": \"additive\"",
         "position is relative and attention is additive, expected full or window (relative "
         "positions are multiplied with queries)"},
        {"\"position\": \"sinusoid\",\n  \"attention\": \"full\"",
         "\"position\": \"alibi\",\n  \"attention\": \"linear\"",
         "position is alibi and attention is linear, expected full, window or additive (alibi "
         "changes scores, which linear attention does not compute)"},
        {"\"kv_heads\": 0", "\"kv_heads\": 3", "heads is 8, expected a multiple of kv_heads, 3"},
        {"\"kv_heads\": 0", "\"kv_heads\": 16", "heads is 8, expected a multiple of kv_heads, 16"},
        {"\"kv_heads\": 0", "\"kv_heads\": -1",
         "kv_heads is '-1', expected a whole number from 0 to 1024"},
        {"\"d_k\": 0", "\"d_k\": 1025", "d_k is '1025', expected a whole number from 0 to 1024"},
        {"\"d_v\": 0", "\"d_v\": 1025", "d_v is '1025', expected a whole number from 0 to 1024"},
        {"\"experts\": 0", "\"experts\": 8", "experts is 8 and ff is dense, expected ff moe"},
        {"\"experts_per_token\": 0", "\"experts_per_token\": 1",
         "experts_per_token is 1 and ff is dense, expected ff moe"},
        {"\"ff\": \"dense\"", "\"ff\": \"meo\"",
         "ff is 'meo', expected dense or moe; did you mean moe?"},
        {"\"experts\": 0", "\"experts\": 65",
         "experts is '65', expected a whole number from 0 to 64"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct heed_config c = {.d_model = 5};
        struct heed_error err = {0};
        assert_int_equal(parse_with(table[i].old, table[i].new, &c, &err), HEED_EFORMAT);
        assert_says(err, "dir/config.json");
        assert_says(err, table[i].words);
        assert_int_equal(c.d_model, 5);
    }
}

/* Experts of a layer and of a token; 0 stands for 8 and 2. */
static void test_experts(void **state)
{
    (void)state;
    struct heed_error err;
    struct heed_config c = preset("base");
    assert_int_equal(config_experts(&c), 0);
    c.ff = HEED_FF_MOE;
    assert_int_equal(config_check(&c, &err), HEED_OK);
    assert_int_equal(config_experts(&c), 8);
    assert_int_equal(config_experts_per_token(&c), 2);
    c.experts = 4, c.experts_per_token = 4;
    assert_int_equal(config_check(&c, &err), HEED_OK);
    c.experts_per_token = 5;
    assert_int_equal(config_check(&c, &err), HEED_EARG);
    assert_string_equal(err.text, "experts_per_token is 5, expected at most experts, 4");
    c.experts = 1, c.experts_per_token = 0;
    assert_int_equal(config_check(&c, &err), HEED_EARG);
    assert_string_equal(err.text, "experts_per_token is 2, expected at most experts, 1");
    c = preset("big"), c.ff = HEED_FF_MOE, c.experts = 64;
    assert_int_equal(config_check(&c, &err), HEED_EARG);
    assert_non_null(strstr(err.text, "the number of parameters is "));
}

static void test_parse_allows(void **state)
{
    (void)state;
    struct heed_config c;
    struct heed_error err;
    assert_int_equal(parse_with("\"dropout\": 0.1", "\"dropout\": 0", &c, &err), HEED_OK);
    assert_true(c.dropout == 0);
    assert_int_equal(parse_with("\"norm\": \"post\",", "", &c, &err), HEED_OK);
    assert_int_equal(parse_with("\"relu\"", "\"gelu\"", &c, &err), HEED_OK);
    assert_int_equal(c.activation, HEED_ACTIVATION_GELU);
    char *text = config_format(&c);
    assert_non_null(strstr(text, "\"activation\": \"gelu\",\n"));
    free(text);
    assert_int_equal(parse_with("\"bias\": false", "\"bias\": true", &c, &err), HEED_OK);
    assert_true(c.bias);
    text = config_format(&c);
    assert_non_null(strstr(text, "\"bias\": true"));
    free(text);
    assert_int_equal(parse_with("\"format\": 2,", "\"format\": 1,", &c, &err), HEED_OK);
    assert_int_equal(parse_with("8000", "4000000", &c, &err), HEED_OK);
}

/* What heads may be like: the widths that are not given come from d_model. */
static void test_heads(void **state)
{
    (void)state;
    struct heed_error err;
    struct heed_config c = preset("base");
    assert_int_equal(config_kv_heads(&c), 8);
    assert_int_equal(config_d_k(&c), 64);
    assert_int_equal(config_d_v(&c), 64);
    assert_int_equal(config_kv_width(&c), 1024);
    assert_int_equal(config_qkv_width(&c), 1536);
    c.kv_heads = 2, c.d_k = 16;
    assert_int_equal(config_check(&c, &err), HEED_OK);
    assert_int_equal(config_kv_width(&c), 2 * (16 + 64));
    assert_int_equal(config_qkv_width(&c), 8 * 16 + 2 * (16 + 64));
    c.heads = 7, c.kv_heads = 1; /* d_v is d_model / heads */
    assert_int_equal(config_check(&c, &err), HEED_EARG);
    assert_string_equal(err.text, "d_model is 512, expected a multiple of the 7 heads unless d_k "
                                  "and d_v are given");
    c.d_v = 24;
    assert_int_equal(config_check(&c, &err), HEED_OK);
    c.heads = 128, c.d_k = 513;
    assert_int_equal(config_check(&c, &err), HEED_EARG);
    assert_string_equal(err.text, "128 heads of d_k 513 are 65664 wide, expected at most 65536");
    c.d_k = 512, c.d_v = 1000;
    assert_int_equal(config_check(&c, &err), HEED_EARG);
    assert_string_equal(err.text, "128 heads of d_v 1000 are 128000 wide, expected at most 65536");
    c.d_v = 512;
    assert_int_equal(config_check(&c, &err), HEED_OK);
}

static void test_check_refuses(void **state)
{
    (void)state;
    struct heed_error err;
    struct heed_config c = preset("base");
    c.vocab_size = 0;
    assert_int_equal(config_check(&c, &err), HEED_EARG);
    assert_string_equal(err.text, "vocab_size is '0', expected a whole number from 1 to 16777216");
    assert_int_equal(heed_config_check(&c, &err), HEED_OK); /* not known yet */
    c.vocab_size = -1;
    assert_int_equal(heed_config_check(&c, &err), HEED_EARG);
    c = preset("base");
    c.d_model = 15;
    c.heads = 5;
    assert_int_equal(config_check(&c, &err), HEED_EARG);
    assert_says(err, "position is sinusoid and d_model is 15, expected an even number");
    c.position = HEED_POSITION_NONE; /* the only kind that pairs numbers of a row is sinusoid */
    assert_int_equal(config_check(&c, &err), HEED_OK);
    c = preset("base");
    c.attention_dropout = NAN;
    assert_int_equal(config_check(&c, &err), HEED_EARG);
    assert_says(err, "attention_dropout is 'nan'");
    c = preset("base");
    c.max_length = 1 << 20;
    c.d_model = 2048;
    assert_int_equal(config_check(&c, &err), HEED_EARG);
    assert_says(err, "max_length times d_model is 2147483648");
    assert_int_equal(config_check(&c, NULL), HEED_EARG);
    c = preset("base");
    c.activation = (enum heed_activation)100;
    assert_int_equal(config_check(&c, &err), HEED_EARG);
    assert_says(err, "activation is '100', expected relu");
    c = preset("base"); /* every matrix is small enough, all together are not */
    c.d_model = 4096;
    c.d_ff = 16384;
    c.heads = 64;
    c.encoder_layers = c.decoder_layers = 10;
    c.vocab_size = 32000;
    assert_int_equal(config_check(&c, &err), HEED_EARG);
    assert_says(err, "the number of parameters is 4");
}

static void test_same(void **state)
{
    (void)state;
    struct heed_error err;
    struct heed_config a = preset("base"), b = preset("base");
    b.vocab_size = 9;
    b.dropout = 0.25f;
    assert_int_equal(config_same(&a, &b, "m/config.json", &err), HEED_EFORMAT);
    assert_string_equal(err.text, "m/config.json: vocab_size is 8000, expected 9");
    a.vocab_size = 9;
    assert_int_equal(config_same(&a, &b, "m/config.json", &err), HEED_EFORMAT);
    assert_string_equal(err.text, "m/config.json: dropout is 0.1, expected 0.25");
    a.dropout = 0.25f;
    b.activation = HEED_ACTIVATION_GELU;
    assert_int_equal(config_same(&a, &b, "m/config.json", &err), HEED_EFORMAT);
    assert_string_equal(err.text, "m/config.json: activation is relu, expected gelu");
    a.activation = HEED_ACTIVATION_GELU;
    a.dropout = 0;
    b.dropout = -0.0f;
    assert_int_equal(config_same(&a, &b, "m/config.json", &err), HEED_OK);
}

/* ---- the table of fields ---- */

static const struct heed_config_field *field(const char *name)
{
    const struct heed_config_field *f;
    for (int i = 0; (f = heed_config_field_at(i)); i++)
        if (strcmp(f->name, name) == 0) return f;
    fail_msg("there is no field %s", name);
    return NULL;
}

/* An option is called like its key; the only field without one is what the vocabulary decides. */
static void test_fields(void **state)
{
    (void)state;
    const struct heed_config_field *f;
    assert_null(heed_config_field_at(-1));
    for (int i = 0; (f = heed_config_field_at(i)); i++) {
        assert_true(f->help && f->help[0]);
        if (strcmp(f->name, "vocab_size") == 0) {
            assert_null(f->option);
            continue;
        }
        char option[64];
        snprintf(option, sizeof option, "%s", f->name);
        for (char *c = option; *c; c++)
            if (*c == '_') *c = '-';
        assert_string_equal(f->option, option);
    }
    assert_int_equal(field("heads")->type, HEED_FIELD_INTEGER);
    assert_int_equal(field("heads")->min, 1);
    assert_int_equal(field("heads")->max, 1024);
    assert_null(field("heads")->absent);
    assert_int_equal(field("dropout")->type, HEED_FIELD_RATE);
    assert_int_equal(field("norm")->type, HEED_FIELD_KIND);
    assert_string_equal(field("norm")->kinds[HEED_NORM_POST], "post");
    assert_string_equal(field("norm")->absent, "post");
    assert_string_equal(field("activation")->kinds[HEED_ACTIVATION_RELU], "relu");
    assert_string_equal(field("position")->kinds[HEED_POSITION_SINUSOID], "sinusoid");
}

static void test_set(void **state)
{
    (void)state;
    struct heed_config c = preset("base");
    struct heed_error err;
    c.activation = (enum heed_activation)100;
    assert_int_equal(heed_config_set(&c, "d_model", "256", &err), HEED_OK);
    assert_int_equal(heed_config_set(&c, "max-length", "99", &err), HEED_OK);
    assert_int_equal(heed_config_set(&c, "ff_dropout", "0.25", &err), HEED_OK);
    assert_int_equal(heed_config_set(&c, "activation", "relu", &err), HEED_OK);
    assert_int_equal(c.d_model, 256);
    assert_int_equal(c.max_length, 99);
    assert_true(c.ff_dropout == 0.25f);
    assert_int_equal(c.activation, HEED_ACTIVATION_RELU);

    static const struct {
        const char *name, *text, *sentence;
    } table[] = {
        {"d-model", "256x", "d-model is '256x', expected a whole number from 1 to 16384"},
        {"d_model", "", "d_model is '', expected a whole number from 1 to 16384"},
        {"heads", "0", "heads is '0', expected a whole number from 1 to 1024"},
        {"heads", "99999999999999999999",
         "heads is '99999999999999999999', expected a whole number from 1 to 1024"},
        {"heads", "4294967304", "heads is '4294967304', expected a whole number from 1 to 1024"},
        {"dropout", "1", "dropout is '1', expected a number of at least 0 and less than 1"},
        {"dropout", "nan", "dropout is 'nan', expected a number of at least 0 and less than 1"},
        {"dropout", "0,5", "dropout is '0,5', expected a number of at least 0 and less than 1"},
        {"norm", "sandwich", "norm is 'sandwich', expected post or pre"},
        {"activation", "tanh", "activation is 'tanh', expected relu, gelu, silu or swiglu"},
        {"activation", "glu",
         "activation is 'glu', expected relu, gelu, silu or swiglu; did you mean gelu?"},
        {"norm", "pots", "norm is 'pots', expected post or pre; did you mean post?"},
        {"norm", "per", "norm is 'per', expected post or pre; did you mean pre?"},
        {"norm", "rms", "norm is 'rms', expected post or pre"},
        {"bias", "yes", "bias is 'yes', expected true or false"},
        {"head", "8", "field \"head\" is unknown; did you mean heads?"},
        {"xyzzy", "8", "field \"xyzzy\" is unknown"},
    };
    const struct heed_config before = c;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_int_equal(heed_config_set(&c, table[i].name, table[i].text, &err), HEED_EARG);
        assert_string_equal(err.text, table[i].sentence);
        assert_int_equal(config_same(&c, &before, "x", &err), HEED_OK);
    }
}

/* The line of docs/file-formats.md that describes a field. */
static void document_row(char *out, size_t size, const struct heed_config_field *f)
{
    char values[256] = "", option[64] = "";
    switch (f->type) {
    case HEED_FIELD_INTEGER:
        snprintf(values, sizeof values, "%d to %d", f->min, f->max);
        break;
    case HEED_FIELD_RATE:
        snprintf(values, sizeof values, "a number of at least 0 and less than 1");
        break;
    case HEED_FIELD_KIND:
        for (int i = 0; f->kinds[i]; i++) {
            size_t n = strlen(values);
            snprintf(values + n, sizeof values - n, "%s`\"%s\"`", i ? ", " : "", f->kinds[i]);
        }
        break;
    case HEED_FIELD_SWITCH:
        snprintf(values, sizeof values, "`true`, `false`");
        break;
    }
    if (f->option) snprintf(option, sizeof option, "`--%s`", f->option);
    snprintf(out, size, "\n| `%s` | %s | %s%s%s | %s | %s |\n", f->name, values,
             f->absent ? "`" : "", f->absent ? f->absent : "required", f->absent ? "`" : "",
             f->option ? option : "none", f->help);
}

/* Tests run in the directory of the source. */
static void test_document(void **state)
{
    (void)state;
    static const char head[] = "\n| key | value | where missing | option | what it is |\n";
    char *text, row[512];
    size_t len;
    struct heed_error err = {0};
    assert_int_equal(file_read("docs/file-formats.md", 1 << 20, &text, &len, &err), HEED_OK);
    const char *at = strstr(text, head);
    assert_non_null(at);
    at = strstr(at, "|---|---|---|---|---|\n");
    assert_non_null(at);
    at += strlen("|---|---|---|---|---|");
    const struct heed_config_field *f;
    for (int i = 0; (f = heed_config_field_at(i)); i++) {
        document_row(row, sizeof row, f);
        if (strncmp(at, row, strlen(row)) != 0)
            fail_msg("docs/file-formats.md should have this row next: %s", row + 1);
        at += strlen(row) - 1;
    }
    assert_int_equal(at[1], '\n'); /* the table ends where the fields end */
    free(text);
}

static void test_load(void **state)
{
    (void)state;
    char dir[] = "/tmp/heed-config-XXXXXX", path[64];
    struct heed_error err;
    struct heed_config c = preset("small"), back;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(file_join(path, sizeof path, dir, "config.json", &err), HEED_OK);
    assert_int_equal(config_load(&back, path, &err), HEED_EIO);
    assert_says(err, path);

    char *text = config_format(&c);
    assert_int_equal(file_write(path, &(struct file_part){text, strlen(text)}, 1, &err), HEED_OK);
    free(text);
    assert_int_equal(config_load(&back, path, &err), HEED_OK);
    assert_int_equal(config_same(&back, &c, path, &err), HEED_OK);

    assert_int_equal(truncate(path, (1 << 20) + 1), 0);
    assert_int_equal(config_load(&back, path, &err), HEED_EFORMAT);
    assert_says(err, "has 1048577 bytes, expected at most 1048576");
    assert_int_equal(file_remove_dir(dir, &err), HEED_OK);
}

/* The parser survives any bytes, and what it accepts passes the check. */
static void test_mutations(void **state)
{
    (void)state;
    static const char spice[] = "0123456789-{}[]\":,e. ";
    struct heed_config c = preset("base"), back;
    struct heed_error err;
    char *good = config_format(&c), bytes[4096];
    size_t len = strlen(good);
    assert_true(len < sizeof bytes);
    uint64_t seed = 3;
    for (int round = 0; round < 20000; round++) {
        memcpy(bytes, good, len);
        for (uint64_t k = random_below(&seed, 3) + 1; k; k--)
            bytes[random_below(&seed, len)] = random_below(&seed, 4)
                                                  ? spice[random_below(&seed, sizeof spice - 1)]
                                                  : (char)random_next(&seed);
        if (config_parse(&back, bytes, len, "x", &err) == HEED_OK)
            assert_int_equal(config_check(&back, &err), HEED_OK);
    }
    free(good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_rates_survive),
        cmocka_unit_test(test_locale),
        cmocka_unit_test(test_parse_refuses),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_parse_allows),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_rope_needs_even_heads),
        cmocka_unit_test(test_check_refuses),
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_format_1),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_document),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
