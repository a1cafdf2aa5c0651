/*
 * config.c - the configuration of a model: the table of its fields, presets, checks.
 *
 * A new field is a member of struct heed_config and a row of FIELD; a new kind is a value of its
 * enum and a row of its names. Everything else walks the table: checks and comparisons here,
 * config.json (config_file.c), the options of `heed train`, and the test that compares
 * docs/file-formats.md with it. Values pass as text: field_set, which reads it, is the one place
 * that decides whether a value is allowed, and config_show is its inverse. Once config_check has
 * passed, every array of the model has fewer than 2^31 elements.
 */
#include "model/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/locale.h"
#include "model/parameters.h"

/* ---- the fields ---- */

static const char *const NORM[] = {
    [HEED_NORM_POST] = "post",
    [HEED_NORM_PRE] = "pre",
    NULL,
};
static const char *const ACTIVATION[] = {
    [HEED_ACTIVATION_RELU] = "relu",
    [HEED_ACTIVATION_GELU] = "gelu",
    [HEED_ACTIVATION_SILU] = "silu",
    [HEED_ACTIVATION_SWIGLU] = "swiglu",
    NULL,
};
static const char *const POSITION[] = {
    [HEED_POSITION_SINUSOID] = "sinusoid",
    [HEED_POSITION_LEARNED] = "learned",
    [HEED_POSITION_ROPE] = "rope",
    [HEED_POSITION_RELATIVE] = "relative",
    [HEED_POSITION_ALIBI] = "alibi",
    [HEED_POSITION_NONE] = "none",
    NULL,
};
static const char *const ATTENTION[] = {
    [HEED_ATTENTION_FULL] = "full",
    [HEED_ATTENTION_WINDOW] = "window",
    [HEED_ATTENTION_ADDITIVE] = "additive",
    [HEED_ATTENTION_LINEAR] = "linear",
    NULL,
};
static const char *const TIE[] = {
    [HEED_TIE_ALL] = "all",
    [HEED_TIE_DECODER] = "decoder",
    [HEED_TIE_NONE] = "none",
    NULL,
};

static const char *const RECOMPUTE[] = {
    [HEED_RECOMPUTE_NONE] = "none",
    [HEED_RECOMPUTE_LAYER] = "layer",
    NULL,
};

static const char *const FF[] = {
    [HEED_FF_DENSE] = "dense",
    [HEED_FF_MOE] = "moe",
    NULL,
};

/* What linear does for each kind. swiglu is not an activation of linear but the op gate. */
static const enum activation_kind LINEAR_ACTIVATION[] = {
    [HEED_ACTIVATION_RELU] = ACT_RELU,
    [HEED_ACTIVATION_GELU] = ACT_GELU,
    [HEED_ACTIVATION_SILU] = ACT_SILU,
    [HEED_ACTIVATION_SWIGLU] = ACT_NONE,
};
_Static_assert(sizeof ACTIVATION / sizeof *ACTIVATION - 1 ==
                   sizeof LINEAR_ACTIVATION / sizeof *LINEAR_ACTIVATION,
               "every kind has a name and what linear does for it");

enum activation_kind config_activation(const struct heed_config *c)
{
    return LINEAR_ACTIVATION[c->activation];
}

const char *config_activation_name(const struct heed_config *c)
{
    return ACTIVATION[c->activation];
}

#define MEMBER(name) #name, offsetof(struct heed_config, name)

/* A field that was not there from the first says with .absent what models without it were. */
static const struct heed_config_field FIELD[] = {
    {MEMBER(d_model), HEED_FIELD_INTEGER, 1, 1 << 14, .option = "d-model",
     .help = "width of the model"},
    {MEMBER(d_ff), HEED_FIELD_INTEGER, 1, 1 << 16, .option = "d-ff",
     .help = "inner width of the feed-forward"},
    {MEMBER(heads), HEED_FIELD_INTEGER, 1, 1 << 10, .option = "heads", .help = "attention heads"},
    {MEMBER(encoder_layers), HEED_FIELD_INTEGER, 1, LAYERS_MAX, .option = "encoder-layers",
     .help = "layers of the encoder"},
    {MEMBER(decoder_layers), HEED_FIELD_INTEGER, 1, LAYERS_MAX, .option = "decoder-layers",
     .help = "layers of the decoder"},
    {MEMBER(vocab_size), HEED_FIELD_INTEGER, 1, 1 << 24, .help = "pieces of the vocabulary"},
    {MEMBER(max_length), HEED_FIELD_INTEGER, 2, 1 << 20, .option = "max-length",
     .help = "longest sentence in tokens, end mark included"},
    {MEMBER(dropout), HEED_FIELD_RATE, .option = "dropout",
     .help = "dropout of sub-layer outputs and of embeddings"},
    {MEMBER(attention_dropout), HEED_FIELD_RATE, .option = "attention-dropout",
     .help = "dropout of attention weights"},
    {MEMBER(ff_dropout), HEED_FIELD_RATE, .option = "ff-dropout",
     .help = "dropout inside the feed-forward"},
    {MEMBER(norm), HEED_FIELD_KIND, .kinds = NORM, .absent = "post", .option = "norm",
     .help = "layer norm; post: after the residual addition; pre: before the sub-layer"},
    {MEMBER(activation), HEED_FIELD_KIND, .kinds = ACTIVATION, .absent = "relu",
     .option = "activation", .help = "activation function of the feed-forward; swiglu: gated"},
    {MEMBER(position), HEED_FIELD_KIND, .kinds = POSITION, .absent = "sinusoid",
     .option = "position", .help = "encoding of the positions of tokens"},
    {MEMBER(attention), HEED_FIELD_KIND, .kinds = ATTENTION, .absent = "full",
     .option = "attention",
     .help = "which positions see which, and how their weights are computed"},
    {MEMBER(window), HEED_FIELD_INTEGER, 0, 1 << 20, .absent = "64", .option = "window",
     .help = "attention window: how far a position sees in each direction"},
    {MEMBER(global), HEED_FIELD_INTEGER, 0, 1 << 20, .absent = "0", .option = "global",
     .help = "attention window: first tokens that see all and are seen by all"},
    {MEMBER(bias), HEED_FIELD_SWITCH, .absent = "false", .option = "bias",
     .help = "biases on the projections of attention"},
    {MEMBER(tie), HEED_FIELD_KIND, .kinds = TIE, .absent = "all", .option = "tie",
     .help = "embeddings that share a matrix; decoder: all but the source's"},
    {MEMBER(kv_heads), HEED_FIELD_INTEGER, 0, 1 << 10, .absent = "0", .option = "kv-heads",
     .help = "key and value heads, shared by the heads; 0: as many as heads"},
    {MEMBER(d_k), HEED_FIELD_INTEGER, 0, HEAD_WIDTH_MAX, .absent = "0", .option = "d-k",
     .help = "width of a head's queries and keys; 0: d_model / heads"},
    {MEMBER(d_v), HEED_FIELD_INTEGER, 0, HEAD_WIDTH_MAX, .absent = "0", .option = "d-v",
     .help = "width of a head's values; 0: d_model / heads"},
    {MEMBER(recompute), HEED_FIELD_KIND, .kinds = RECOMPUTE, .absent = "none",
     .option = "recompute", .help = "layer: train with less memory, computing layers again"},
    {MEMBER(ff), HEED_FIELD_KIND, .kinds = FF, .absent = "dense", .option = "ff",
     .help = "feed-forward; moe: a mixture of experts"},
    {MEMBER(experts), HEED_FIELD_INTEGER, 0, EXPERTS_MAX, .absent = "0", .option = "experts",
     .help = "experts of a layer, with ff moe; 0: 8"},
    {MEMBER(experts_per_token), HEED_FIELD_INTEGER, 0, EXPERTS_PER_ROW_MAX, .absent = "0",
     .option = "experts-per-token", .help = "experts that a token is sent to; 0: 2"},
};

enum { FIELDS = sizeof FIELD / sizeof *FIELD };

const struct heed_config_field *heed_config_field_at(int i)
{
    return i >= 0 && i < FIELDS ? &FIELD[i] : NULL;
}

static const struct heed_config_field *field_find(const char *name)
{
    for (int i = 0; i < FIELDS; i++) {
        const struct heed_config_field *f = &FIELD[i];
        if (strcmp(f->name, name) == 0 || (f->option && strcmp(f->option, name) == 0)) return f;
    }
    return NULL;
}

/* ---- values as text; the decimal point is a point in every locale ---- */

_Static_assert(sizeof(enum heed_norm) == sizeof(int), "a kind is stored like an int");

/* With the fewest digits that give v back: 0.1f is 0.1, not 0.100000001. */
static void rate_show(char out[CONFIG_VALUE], float v)
{
    enum { DIGITS = 9 }; /* enough for any float */
    struct c_locale locale = c_locale_enter();
    for (int digits = 1; digits <= DIGITS; digits++) {
        snprintf(out, CONFIG_VALUE, "%.*g", digits, v == 0 ? 0.0 : (double)v); /* -0 is 0 */
        if (strtof(out, NULL) == v) break;
    }
    c_locale_leave(locale);
}

const char *config_show(char out[CONFIG_VALUE], const struct heed_config *c,
                        const struct heed_config_field *f)
{
    const void *at = (const char *)c + f->offset;
    switch (f->type) {
    case HEED_FIELD_INTEGER:
        snprintf(out, CONFIG_VALUE, "%d", *(const int *)at);
        break;
    case HEED_FIELD_RATE:
        rate_show(out, *(const float *)at);
        break;
    case HEED_FIELD_KIND:
        snprintf(out, CONFIG_VALUE, "%d", *(const int *)at); /* if no kind has this number */
        for (int i = 0; f->kinds[i]; i++)
            if (i == *(const int *)at) snprintf(out, CONFIG_VALUE, "%s", f->kinds[i]);
        break;
    case HEED_FIELD_SWITCH:
        snprintf(out, CONFIG_VALUE, "%s", *(const bool *)at ? "true" : "false");
        break;
    }
    return out;
}

static bool integer_parse(int *v, const struct heed_config_field *f, const char *text)
{
    char *end;
    errno = 0;
    long long found = strtoll(text, &end, 10);
    if (end == text || *end || errno || found < f->min || found > f->max) return false;
    *v = (int)found;
    return true;
}

static bool rate_parse(float *v, const char *text)
{
    struct c_locale locale = c_locale_enter();
    char *end;
    double found = strtod(text, &end);
    c_locale_leave(locale);
    bool in_range = found >= 0 && found < 1 && (float)found < 1; /* false for NaN */
    if (end == text || *end || !in_range) return false;
    *v = (float)found;
    return true;
}

static bool kind_parse(int *v, const struct heed_config_field *f, const char *text)
{
    for (int i = 0; f->kinds[i]; i++)
        if (strcmp(f->kinds[i], text) == 0) return *v = i, true;
    return false;
}

static bool switch_parse(bool *v, const char *text)
{
    bool on = strcmp(text, "true") == 0;
    if (!on && strcmp(text, "false") != 0) return false;
    *v = on;
    return true;
}

/* false: the text is no value of the field, and *c is as it was. */
static bool field_set(struct heed_config *c, const struct heed_config_field *f, const char *text)
{
    void *at = (char *)c + f->offset;
    switch (f->type) {
    case HEED_FIELD_INTEGER:
        return integer_parse(at, f, text);
    case HEED_FIELD_RATE:
        return rate_parse(at, text);
    case HEED_FIELD_KIND:
        return kind_parse(at, f, text);
    case HEED_FIELD_SWITCH:
        return switch_parse(at, text);
    }
    return false;
}

/* ---- sentences about values and names ---- */

enum { PHRASE = 256 }; /* bytes of a part of a sentence */

/* "post", "relu or gelu", "relu, gelu or silu" */
static const char *kinds_list(char out[PHRASE], const struct heed_config_field *f)
{
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; f->kinds[i] && n < PHRASE; i++) {
        const char *before = i == 0 ? "" : f->kinds[i + 1] ? ", " : " or ";
        n += (size_t)snprintf(out + n, PHRASE - n, "%s%s", before, f->kinds[i]);
    }
    return out;
}

/* "; did you mean GUESS?", or nothing where there is no guess. */
static const char *did_you_mean(char out[PHRASE], const char *guess)
{
    out[0] = '\0';
    if (guess) snprintf(out, PHRASE, "; did you mean %s?", guess);
    return out;
}

static enum heed_status bad_kind(const struct heed_config_field *f, const char *name,
                                 const char *text, struct heed_error *err)
{
    char list[PHRASE], question[PHRASE];
    const char *guess = NULL;
    for (int i = 0; f->kinds[i]; i++) guess = heed_nearer(text, guess, f->kinds[i]);
    return error_set(err, HEED_EARG, "%s is '%.80s', expected %s%s", name, text,
                     kinds_list(list, f), did_you_mean(question, guess));
}

static enum heed_status bad_value(const struct heed_config_field *f, const char *name,
                                  const char *text, struct heed_error *err)
{
    switch (f->type) {
    case HEED_FIELD_INTEGER:
        return error_set(err, HEED_EARG, "%s is '%.80s', expected a whole number from %d to %d",
                         name, text, f->min, f->max);
    case HEED_FIELD_RATE:
        return error_set(err, HEED_EARG,
                         "%s is '%.80s', expected a number of at least 0 and less than 1", name,
                         text);
    case HEED_FIELD_SWITCH:
        return error_set(err, HEED_EARG, "%s is '%.80s', expected true or false", name, text);
    case HEED_FIELD_KIND:
        break;
    }
    return bad_kind(f, name, text, err);
}

enum heed_status config_unknown_field(const char *name, const char *called, struct heed_error *err)
{
    char question[PHRASE];
    const char *guess = NULL;
    for (int i = 0; i < FIELDS; i++) guess = heed_nearer(name, guess, FIELD[i].name);
    return error_set(err, HEED_EARG, "%s \"%.80s\" is unknown%s", called, name,
                     did_you_mean(question, guess));
}

enum heed_status heed_config_set(struct heed_config *c, const char *name, const char *text,
                                 struct heed_error *err)
{
    if (!c) return error_null(err, "config");
    if (!name) return error_null(err, "name");
    if (!text) return error_null(err, "text");
    const struct heed_config_field *f = field_find(name);
    if (!f) return config_unknown_field(name, "field", err);
    return field_set(c, f, text) ? HEED_OK : bad_value(f, name, text, err);
}

/* ---- presets: paper table 3, and two for smaller corpora ---- */

struct preset {
    const char *name;
    int layers, d_model, heads, d_ff;
    float dropout;
};

static const struct preset PRESET[] = {
    {"tiny", 4, 128, 4, 256, 0.1f},
    {"small", 3, 256, 4, 1024, 0.1f},
    {"base", 6, 512, 8, 2048, 0.1f},
    {"big", 6, 1024, 16, 4096, 0.3f},
};

enum heed_status heed_config_preset(struct heed_config *c, const char *name, struct heed_error *err)
{
    if (!c) return error_null(err, "config");
    if (!name) return error_null(err, "name");
    for (size_t i = 0; i < sizeof PRESET / sizeof *PRESET; i++) {
        const struct preset *p = &PRESET[i];
        if (strcmp(name, p->name) != 0) continue;
        *c = (struct heed_config){
            .d_model = p->d_model,
            .d_ff = p->d_ff,
            .heads = p->heads,
            .encoder_layers = p->layers,
            .decoder_layers = p->layers,
            .max_length = 512,
            .dropout = p->dropout,
            .attention_dropout = 0.1f,
            .ff_dropout = 0.1f,
        };
        for (int k = 0; k < FIELDS; k++)
            if (FIELD[k].absent) field_set(c, &FIELD[k], FIELD[k].absent);
        return HEED_OK;
    }
    return error_set(err, HEED_EARG, "preset is \"%s\", expected tiny, small, base or big", name);
}

/* ---- checks ---- */

enum { HEADS_WIDTH_MAX = 1 << 16 }; /* of all heads together, like d_ff */

/* Parameters lie in one array, and arrays have fewer than 2^31 elements. */
static enum heed_status check_total(const char *what, size_t found, struct heed_error *err)
{
    if (found <= INT32_MAX) return HEED_OK;
    return error_set(err, HEED_EARG, "%s is %zu, expected at most %d", what, found, INT32_MAX);
}

static enum heed_status check_heads(const struct heed_config *c, struct heed_error *err)
{
    bool by_default = !c->d_k || !c->d_v; /* a width of a head is d_model / heads */
    if (by_default && c->d_model % c->heads)
        return error_set(err, HEED_EARG,
                         "d_model is %d, expected a multiple of the %d heads unless d_k and d_v "
                         "are given",
                         c->d_model, c->heads);
    if (by_default && c->d_model / c->heads > HEAD_WIDTH_MAX)
        return error_set(err, HEED_EARG, "a head is %d wide with %d heads, expected at most %d",
                         c->d_model / c->heads, c->heads, HEAD_WIDTH_MAX);
    if (c->heads % config_kv_heads(c))
        return error_set(err, HEED_EARG, "heads is %d, expected a multiple of kv_heads, %d",
                         c->heads, c->kv_heads);
    if (c->heads * config_d_k(c) > HEADS_WIDTH_MAX)
        return error_set(err, HEED_EARG, "%d heads of d_k %d are %d wide, expected at most %d",
                         c->heads, config_d_k(c), c->heads * config_d_k(c), HEADS_WIDTH_MAX);
    if (c->heads * config_d_v(c) > HEADS_WIDTH_MAX)
        return error_set(err, HEED_EARG, "%d heads of d_v %d are %d wide, expected at most %d",
                         c->heads, config_d_v(c), c->heads * config_d_v(c), HEADS_WIDTH_MAX);
    return HEED_OK;
}

static enum heed_status check_experts(const struct heed_config *c, struct heed_error *err)
{
    int experts = config_experts(c), per_token = config_experts_per_token(c);
    if (c->ff != HEED_FF_MOE && (c->experts || c->experts_per_token))
        return error_set(err, HEED_EARG, "%s is %d and ff is %s, expected ff moe",
                         c->experts ? "experts" : "experts_per_token",
                         c->experts ? c->experts : c->experts_per_token, FF[c->ff]);
    if (c->ff == HEED_FF_MOE && per_token > experts)
        return error_set(err, HEED_EARG, "experts_per_token is %d, expected at most experts, %d",
                         per_token, experts);
    return HEED_OK;
}

/* Whether a field has the value that it has unless it is given. */
static bool as_absent(const struct heed_config *c, const char *name)
{
    char value[CONFIG_VALUE];
    const struct heed_config_field *f = field_find(name);
    return strcmp(config_show(value, c, f), f->absent) == 0;
}

static enum heed_status check_attention(const struct heed_config *c, struct heed_error *err)
{
    const char *kind = ATTENTION[c->attention];
    bool window = c->attention == HEED_ATTENTION_WINDOW;
    if (window && c->window < 1)
        return error_set(err, HEED_EARG,
                         "window is %d and attention is window, expected at least 1", c->window);
    if (!window && c->window && !as_absent(c, "window"))
        return error_set(err, HEED_EARG,
                         "window is %d and attention is %s, expected attention window", c->window,
                         kind);
    if (!window && c->global)
        return error_set(err, HEED_EARG,
                         "global is %d and attention is %s, expected attention window", c->global,
                         kind);
    bool additive = c->attention == HEED_ATTENTION_ADDITIVE, linear = config_linear(c);
    if (c->position == HEED_POSITION_RELATIVE && (additive || linear))
        return error_set(err, HEED_EARG,
                         "position is relative and attention is %s, expected full or window "
                         "(relative positions are multiplied with queries)",
                         kind);
    if (c->position == HEED_POSITION_ALIBI && linear)
        return error_set(
            err, HEED_EARG,
            "position is alibi and attention is linear, expected full, window or "
            "additive (alibi changes scores, which linear attention does not compute)");
    return HEED_OK;
}

enum heed_status config_check(const struct heed_config *c, struct heed_error *err)
{
    struct heed_config again = *c;
    char value[CONFIG_VALUE];
    enum heed_status st = HEED_OK;
    for (int i = 0; i < FIELDS; i++) {
        const struct heed_config_field *f = &FIELD[i];
        st = heed_config_set(&again, f->name, config_show(value, c, f), err);
        if (st) return st;
    }
    if (c->position == HEED_POSITION_SINUSOID && c->d_model % 2)
        return error_set(err, HEED_EARG,
                         "position is sinusoid and d_model is %d, expected an even number (sines "
                         "and cosines alternate)",
                         c->d_model);
    st = check_heads(c, err);
    if (!st) st = check_experts(c, err);
    if (!st) st = check_attention(c, err);
    if (st) return st;
    if (c->position == HEED_POSITION_ROPE && config_d_k(c) % 2)
        return error_set(err, HEED_EARG,
                         "position is rope and d_k is %d, expected an even number (rope rotates "
                         "pairs of numbers)",
                         config_d_k(c));
    size_t positions = (size_t)c->max_length * (size_t)c->d_model;
    st = check_total("max_length times d_model", positions, err);
    if (!st) st = check_total("the number of parameters", parameters_count(c), err);
    return st;
}

enum heed_status heed_config_check(const struct heed_config *c, struct heed_error *err)
{
    if (!c) return error_null(err, "config");
    struct heed_config known = *c;
    if (known.vocab_size == 0) known.vocab_size = 1;
    return config_check(&known, err);
}

enum heed_status config_same(const struct heed_config *found, const struct heed_config *expected,
                             const char *path, struct heed_error *err)
{
    char x[CONFIG_VALUE], y[CONFIG_VALUE];
    for (int i = 0; i < FIELDS; i++) {
        const struct heed_config_field *f = &FIELD[i];
        config_show(x, found, f);
        config_show(y, expected, f);
        if (strcmp(x, y) != 0)
            return error_set(err, HEED_EFORMAT, "%s: %s is %s, expected %s", path, f->name, x, y);
    }
    return HEED_OK;
}
