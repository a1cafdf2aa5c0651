/*
 * config.c - the shape of the model: its fields, presets, checks, config.json.
 *
 * One table describes the fields. Checking, writing, reading and comparing walk it, and the options
 * of `heed train` and docs/file-formats.md follow it, so a new field is a member of struct
 * heed_config and a row here, and a new kind is a value of its enum and a row of its names. Once
 * config_check has passed, every array of the model has fewer than 2^31 elements.
 */
#include "model/config.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/locale.h"
#include "model/parameters.h"

/* ---- the fields ---- */

static const char *const NORM[] = {
    [HEED_NORM_POST] = "post",
    NULL,
};
static const char *const ACTIVATION[] = {
    [HEED_ACTIVATION_RELU] = "relu",
    NULL,
};
static const char *const POSITION[] = {
    [HEED_POSITION_SINUSOID] = "sinusoid",
    NULL,
};

/* The kinds of heed.h and of ops.h are in one order; ops.h has the identity before them. */
_Static_assert(sizeof ACTIVATION / sizeof *ACTIVATION - 1 == ACT_KINDS - ACT_RELU,
               "every activation has a name and an op");

enum activation_kind config_activation(const struct heed_config *c)
{
    return (enum activation_kind)(ACT_RELU + (int)c->activation);
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
     .help = "layer norm; post: after the residual addition"},
    {MEMBER(activation), HEED_FIELD_KIND, .kinds = ACTIVATION, .absent = "relu",
     .option = "activation", .help = "activation function of the feed-forward"},
    {MEMBER(position), HEED_FIELD_KIND, .kinds = POSITION, .absent = "sinusoid",
     .option = "position", .help = "encoding of the positions of tokens"},
};

enum {
    FIELDS = sizeof FIELD / sizeof *FIELD,
    /* The format goes up when a key changes its meaning. A new key or kind needs no new format: an
     * older program refuses it by name. Format 1 had no key "format". */
    FORMAT = 2,
    FILE_MOST = 1 << 20, /* bytes of a config.json */
    RATE_DIGITS = 9,     /* enough for any float */
    SENTENCE = 256       /* bytes of a part of a sentence */
};

const struct heed_config_field *heed_config_field_at(int i)
{
    return i >= 0 && i < FIELDS ? &FIELD[i] : NULL;
}

/* The member of an integer or of a kind: an enum is as wide as an int. */
_Static_assert(sizeof(enum heed_norm) == sizeof(int) && sizeof(enum heed_activation) == sizeof(int),
               "enums are as wide as int");

static int integer_get(const struct heed_config *c, const struct heed_config_field *f)
{
    return *(const int *)((const char *)c + f->offset);
}

static void integer_set(struct heed_config *c, const struct heed_config_field *f, int v)
{
    *(int *)((char *)c + f->offset) = v;
}

static float rate_get(const struct heed_config *c, const struct heed_config_field *f)
{
    return *(const float *)((const char *)c + f->offset);
}

static void rate_set(struct heed_config *c, const struct heed_config_field *f, float v)
{
    *(float *)((char *)c + f->offset) = v;
}

/* The ranges take what a text or a file says, before it is narrowed to the type of its member. */
static bool integer_fits(const struct heed_config_field *f, long long v)
{
    return v >= f->min && v <= f->max;
}

static bool rate_fits(double v)
{
    return v >= 0 && v < 1 && (float)v < 1; /* false for NaN */
}

static int kinds_count(const struct heed_config_field *f)
{
    int n = 0;
    while (f->kinds[n]) n++;
    return n;
}

/* The value of the enum; -1 where no kind has this name. */
static int kind_find(const struct heed_config_field *f, const char *name)
{
    for (int i = 0; f->kinds[i]; i++)
        if (strcmp(f->kinds[i], name) == 0) return i;
    return -1;
}

/* ---- parts of sentences ---- */

/* "post", "relu or gelu", "relu, gelu or silu" */
static const char *kinds_list(char out[SENTENCE], const struct heed_config_field *f)
{
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; f->kinds[i] && n < SENTENCE; i++) {
        const char *before = i == 0 ? "" : f->kinds[i + 1] ? ", " : " or ";
        n += (size_t)snprintf(out + n, SENTENCE - n, "%s%s", before, f->kinds[i]);
    }
    return out;
}

/* A question behind a sentence; empty where there is no guess. */
static const char *did_you_mean(char out[SENTENCE], const char *guess)
{
    snprintf(out, SENTENCE, guess ? "; did you mean \"%s\"?" : "%s", guess ? guess : "");
    return out;
}

static const char *guess_kind(char out[SENTENCE], const struct heed_config_field *f,
                              const char *word)
{
    const char *guess = NULL;
    for (int i = 0; f->kinds[i]; i++) guess = heed_nearer(word, guess, f->kinds[i]);
    return did_you_mean(out, guess);
}

static const char *guess_field(char out[SENTENCE], const char *word)
{
    const char *guess = NULL;
    for (int i = 0; i < FIELDS; i++) guess = heed_nearer(word, guess, FIELD[i].name);
    return did_you_mean(out, guess);
}

/* ---- values as text ---- */

/* The decimal point of a rate is a point in every locale. */
static bool number_parse(double *v, const char *text)
{
    struct c_locale locale = c_locale_enter();
    char *end;
    *v = strtod(text, &end);
    c_locale_leave(locale);
    return end != text && !*end;
}

/* false: the text is no value of the field, and *c is as it was. */
static bool field_set(struct heed_config *c, const struct heed_config_field *f, const char *text)
{
    switch (f->type) {
    case HEED_FIELD_INTEGER: {
        char *end;
        errno = 0;
        long long v = strtoll(text, &end, 10);
        if (end == text || *end || errno || !integer_fits(f, v)) return false;
        integer_set(c, f, (int)v);
        return true;
    }
    case HEED_FIELD_RATE: {
        double v;
        if (!number_parse(&v, text) || !rate_fits(v)) return false;
        rate_set(c, f, (float)v);
        return true;
    }
    case HEED_FIELD_KIND: {
        int v = kind_find(f, text);
        if (v < 0) return false;
        integer_set(c, f, v);
        return true;
    }
    }
    return false;
}

static void field_set_absent(struct heed_config *c, const struct heed_config_field *f)
{
    bool good = field_set(c, f, f->absent);
    assert(good);
    (void)good;
}

static const struct heed_config_field *field_find(const char *name)
{
    for (int i = 0; i < FIELDS; i++) {
        const struct heed_config_field *f = &FIELD[i];
        if (strcmp(f->name, name) == 0 || (f->option && strcmp(f->option, name) == 0)) return f;
    }
    return NULL;
}

enum heed_status heed_config_set(struct heed_config *c, const char *name, const char *text,
                                 struct heed_error *err)
{
    char list[SENTENCE], guess[SENTENCE];
    if (!c) return error_null(err, "config");
    if (!name) return error_null(err, "name");
    if (!text) return error_null(err, "text");
    const struct heed_config_field *f = field_find(name);
    if (!f)
        return error_set(err, HEED_EARG, "a configuration has no field \"%.80s\"%s", name,
                         guess_field(guess, name));
    if (field_set(c, f, text)) return HEED_OK;
    if (f->type == HEED_FIELD_INTEGER)
        return error_set(err, HEED_EARG, "%s is '%.80s', expected a whole number from %d to %d",
                         name, text, f->min, f->max);
    if (f->type == HEED_FIELD_RATE)
        return error_set(err, HEED_EARG,
                         "%s is '%.80s', expected a number of at least 0 and less than 1", name,
                         text);
    return error_set(err, HEED_EARG, "%s is '%.80s', expected %s%s", name, text,
                     kinds_list(list, f), guess_kind(guess, f, text));
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
            if (FIELD[k].absent) field_set_absent(c, &FIELD[k]);
        return HEED_OK;
    }
    return error_set(err, HEED_EARG, "preset is \"%s\", expected tiny, small, base or big", name);
}

/* ---- checks ---- */

static enum heed_status integer_check(const struct heed_config_field *f, long long found,
                                      struct heed_error *err)
{
    if (integer_fits(f, found)) return HEED_OK;
    return error_set(err, HEED_EARG, "%s is %lld, expected %d to %d", f->name, found, f->min,
                     f->max);
}

static enum heed_status rate_check(const struct heed_config_field *f, double found,
                                   struct heed_error *err)
{
    if (rate_fits(found)) return HEED_OK;
    return error_set(err, HEED_EARG, "%s is %.9g, expected at least 0 and less than 1", f->name,
                     found);
}

static enum heed_status kind_check(const struct heed_config_field *f, int found,
                                   struct heed_error *err)
{
    int n = kinds_count(f);
    if (found >= 0 && found < n) return HEED_OK;
    return error_set(err, HEED_EARG, "%s is %d, expected the number of a kind, 0 to %d", f->name,
                     found, n - 1);
}

static enum heed_status field_check(const struct heed_config *c, const struct heed_config_field *f,
                                    struct heed_error *err)
{
    switch (f->type) {
    case HEED_FIELD_INTEGER:
        return integer_check(f, integer_get(c, f), err);
    case HEED_FIELD_RATE:
        return rate_check(f, (double)rate_get(c, f), err);
    case HEED_FIELD_KIND:
        return kind_check(f, integer_get(c, f), err);
    }
    return HEED_EARG;
}

/* Parameters lie in one array, and arrays have fewer than 2^31 elements. */
static enum heed_status check_total(const char *what, size_t found, struct heed_error *err)
{
    if (found <= INT32_MAX) return HEED_OK;
    return error_set(err, HEED_EARG, "%s is %zu, expected at most %d", what, found, INT32_MAX);
}

enum heed_status config_check(const struct heed_config *c, struct heed_error *err)
{
    for (int i = 0; i < FIELDS; i++) {
        enum heed_status st = field_check(c, &FIELD[i], err);
        if (st) return st;
    }
    if (c->d_model % 2)
        return error_set(err, HEED_EARG,
                         "d_model is %d, expected an even number (positions pair sin and cos)",
                         c->d_model);
    if (c->d_model % c->heads)
        return error_set(err, HEED_EARG, "d_model is %d, expected a multiple of the %d heads",
                         c->d_model, c->heads);
    if (c->d_model / c->heads > HEAD_WIDTH_MAX)
        return error_set(err, HEED_EARG, "a head is %d wide with %d heads, expected at most %d",
                         c->d_model / c->heads, c->heads, HEAD_WIDTH_MAX);
    size_t positions = (size_t)c->max_length * (size_t)c->d_model;
    enum heed_status st = check_total("max_length times d_model", positions, err);
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

/* ---- config.json: writing ---- */

/* The double whose first RATE_DIGITS digits are the fewest that give v back: 0.1f is written as
 * 0.1, not as 0.100000001. */
static double rate_shorten(float v)
{
    char text[32];
    for (int digits = 1; digits < RATE_DIGITS; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        double d = strtod(text, NULL);
        if ((float)d == v) return d;
    }
    return v;
}

/* NULL when out of memory. */
static json_t *field_format(const struct heed_config *c, const struct heed_config_field *f)
{
    switch (f->type) {
    case HEED_FIELD_INTEGER:
        return json_integer(integer_get(c, f));
    case HEED_FIELD_RATE:
        return json_real(rate_shorten(rate_get(c, f)));
    case HEED_FIELD_KIND:
        return json_string(f->kinds[integer_get(c, f)]);
    }
    return NULL;
}

/* NULL when out of memory. */
static json_t *root_format(const struct heed_config *c)
{
    json_t *root = json_pack("{s:s, s:i}", "model_type", "heed", "format", FORMAT);
    for (int i = 0; root && i < FIELDS; i++) {
        const struct heed_config_field *f = &FIELD[i];
        if (json_object_set_new(root, f->name, field_format(c, f)) != 0) {
            json_decref(root);
            return NULL;
        }
    }
    return root;
}

char *config_format(const struct heed_config *c)
{
    json_t *root = root_format(c);
    if (!root) return NULL;
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    bool good =
        out && json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(RATE_DIGITS)) == 0;
    good = good && fputc('\n', out) != EOF;
    if (out && fclose(out) != 0) good = false;
    json_decref(root);
    if (good) return text;
    free(text);
    return NULL;
}

/* ---- config.json: reading ---- */

static enum heed_status kind_parse(struct heed_config *c, const struct heed_config_field *f,
                                   const char *name, struct heed_error *err)
{
    char list[SENTENCE], guess[SENTENCE];
    int v = kind_find(f, name);
    if (v < 0)
        return error_set(err, HEED_EFORMAT,
                         "%s is \"%.80s\", expected %s (this program reads formats up to %d)%s",
                         f->name, name, kinds_list(list, f), FORMAT, guess_kind(guess, f, name));
    integer_set(c, f, v);
    return HEED_OK;
}

static enum heed_status field_parse(struct heed_config *c, const struct heed_config_field *f,
                                    const json_t *value, struct heed_error *err)
{
    enum heed_status st = HEED_OK;
    switch (f->type) {
    case HEED_FIELD_INTEGER:
        if (!json_is_integer(value))
            return error_set(err, HEED_EFORMAT, "\"%s\" is not a whole number", f->name);
        st = integer_check(f, json_integer_value(value), err);
        if (!st) integer_set(c, f, (int)json_integer_value(value));
        break;
    case HEED_FIELD_RATE:
        if (!json_is_number(value))
            return error_set(err, HEED_EFORMAT, "\"%s\" is not a number", f->name);
        st = rate_check(f, json_number_value(value), err);
        if (!st) rate_set(c, f, (float)json_number_value(value));
        break;
    case HEED_FIELD_KIND:
        if (!json_is_string(value))
            return error_set(err, HEED_EFORMAT, "\"%s\" is not a string", f->name);
        st = kind_parse(c, f, json_string_value(value), err);
        break;
    }
    return st;
}

static enum heed_status check_model_type(const json_t *root, struct heed_error *err)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    if (!type) return error_set(err, HEED_EFORMAT, "key \"model_type\" is missing or not a string");
    if (strcmp(type, "heed") != 0)
        return error_set(err, HEED_EFORMAT, "\"model_type\" is \"%.80s\", expected \"heed\"", type);
    return HEED_OK;
}

static enum heed_status check_format(const json_t *root, struct heed_error *err)
{
    const json_t *format = json_object_get(root, "format");
    if (!format) return HEED_OK; /* format 1 */
    if (!json_is_integer(format))
        return error_set(err, HEED_EFORMAT, "\"format\" is not a whole number");
    json_int_t found = json_integer_value(format);
    if (found >= 1 && found <= FORMAT) return HEED_OK;
    return error_set(err, HEED_EFORMAT, "\"format\" is %lld, expected 1 to %d%s", (long long)found,
                     FORMAT, found > FORMAT ? ": a newer version of heed wrote this file" : "");
}

/* Every key means something: an unknown one is of a newer program, or mistyped. */
static enum heed_status check_keys(const json_t *root, struct heed_error *err)
{
    char guess[SENTENCE];
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)root, key, value) {
        bool known = strcmp(key, "model_type") == 0 || strcmp(key, "format") == 0;
        for (int i = 0; i < FIELDS && !known; i++) known = strcmp(key, FIELD[i].name) == 0;
        if (!known)
            return error_set(err, HEED_EFORMAT,
                             "key \"%.80s\" is unknown (this program reads formats up to %d)%s",
                             key, FORMAT, guess_field(guess, key));
    }
    return HEED_OK;
}

static enum heed_status root_parse(struct heed_config *c, const json_t *root,
                                   struct heed_error *err)
{
    if (!json_is_object(root)) return error_set(err, HEED_EFORMAT, "not a JSON object");
    enum heed_status st = check_model_type(root, err);
    if (!st) st = check_format(root, err);
    if (!st) st = check_keys(root, err);
    for (int i = 0; i < FIELDS && !st; i++) {
        const struct heed_config_field *f = &FIELD[i];
        const json_t *value = json_object_get(root, f->name);
        if (value) {
            st = field_parse(c, f, value, err);
        } else if (f->absent) {
            field_set_absent(c, f);
        } else {
            st = error_set(err, HEED_EFORMAT, "key \"%s\" is missing", f->name);
        }
    }
    return st ? st : config_check(c, err);
}

enum heed_status config_parse(struct heed_config *c, const char *json, size_t len, const char *path,
                              struct heed_error *err)
{
    json_error_t where;
    json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &where);
    if (!root && !where.text[0]) return error_memory(err, len, path);
    if (!root)
        return error_set(err, HEED_EFORMAT, "%s is not valid JSON, line %d column %d: %s", path,
                         where.line, where.column, where.text);
    struct heed_config read = {0};
    struct heed_error why = {0};
    enum heed_status st = root_parse(&read, root, &why);
    json_decref(root);
    if (st) return error_set(err, HEED_EFORMAT, "%s: %s", path, why.text);
    *c = read;
    return HEED_OK;
}

enum heed_status config_load(struct heed_config *c, const char *path, struct heed_error *err)
{
    char *text = NULL;
    size_t len = 0;
    enum heed_status st = file_read(path, FILE_MOST, &text, &len, err);
    if (st) return st;
    st = config_parse(c, text, len, path, err);
    free(text);
    return st;
}

/* ---- comparing ---- */

static bool field_same(const struct heed_config *a, const struct heed_config *b,
                       const struct heed_config_field *f)
{
    if (f->type == HEED_FIELD_RATE) return rate_get(a, f) == rate_get(b, f);
    return integer_get(a, f) == integer_get(b, f);
}

/* A value as heed_config_set reads it. */
static const char *field_show(char out[SENTENCE], const struct heed_config *c,
                              const struct heed_config_field *f)
{
    switch (f->type) {
    case HEED_FIELD_INTEGER:
        snprintf(out, SENTENCE, "%d", integer_get(c, f));
        break;
    case HEED_FIELD_RATE:
        snprintf(out, SENTENCE, "%.*g", RATE_DIGITS, rate_shorten(rate_get(c, f)));
        break;
    case HEED_FIELD_KIND:
        snprintf(out, SENTENCE, "%s", f->kinds[integer_get(c, f)]);
        break;
    }
    return out;
}

enum heed_status config_same(const struct heed_config *found, const struct heed_config *expected,
                             const char *path, struct heed_error *err)
{
    char x[SENTENCE], y[SENTENCE];
    for (int i = 0; i < FIELDS; i++) {
        const struct heed_config_field *f = &FIELD[i];
        if (!field_same(found, expected, f))
            return error_set(err, HEED_EFORMAT, "%s: %s is %s, expected %s", path, f->name,
                             field_show(x, found, f), field_show(y, expected, f));
    }
    return HEED_OK;
}
