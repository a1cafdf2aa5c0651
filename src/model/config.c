/*
 * config.c - the shape of the model: presets, checks, config.json.
 *
 * One table lists the fields; checking, writing, reading and comparing walk it, so a new field is
 * one line there. Once config_check has passed, every array of the model has fewer than 2^31
 * elements.
 */
#include "model/config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "model/parameters.h"

/* A size, from least to most, or, where most is 0, a rate in [0, 1). */
struct field {
    const char *key;
    size_t offset;
    int least, most;
};

static const struct field FIELD[] = {
    {"d_model", offsetof(struct heed_config, d_model), 1, 1 << 14},
    {"d_ff", offsetof(struct heed_config, d_ff), 1, 1 << 16},
    {"heads", offsetof(struct heed_config, heads), 1, 1 << 10},
    {"encoder_layers", offsetof(struct heed_config, encoder_layers), 1, LAYERS_MAX},
    {"decoder_layers", offsetof(struct heed_config, decoder_layers), 1, LAYERS_MAX},
    {"vocab_size", offsetof(struct heed_config, vocab_size), 1, 1 << 24},
    {"max_length", offsetof(struct heed_config, max_length), 2, 1 << 20} /* a token and its mark */,
    {"dropout", offsetof(struct heed_config, dropout), 0, 0},
    {"attention_dropout", offsetof(struct heed_config, attention_dropout), 0, 0},
    {"ff_dropout", offsetof(struct heed_config, ff_dropout), 0, 0},
};

enum {
    FIELDS = sizeof FIELD / sizeof *FIELD,
    FILE_MOST = 1 << 20, /* bytes of a config.json */
    RATE_DIGITS = 9      /* enough for any float */
};

static bool is_rate(const struct field *f)
{
    return f->most == 0;
}

static int size_get(const struct heed_config *c, const struct field *f)
{
    return *(const int *)((const char *)c + f->offset);
}

static void size_set(struct heed_config *c, const struct field *f, int v)
{
    *(int *)((char *)c + f->offset) = v;
}

static float rate_get(const struct heed_config *c, const struct field *f)
{
    return *(const float *)((const char *)c + f->offset);
}

static void rate_set(struct heed_config *c, const struct field *f, float v)
{
    *(float *)((char *)c + f->offset) = v;
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
        return HEED_OK;
    }
    return error_set(err, HEED_EARG, "preset is \"%s\", expected tiny, small, base or big", name);
}

/* ---- checks ---- */

static enum heed_status check_size(const struct field *f, long long found, struct heed_error *err)
{
    if (found >= f->least && found <= f->most) return HEED_OK;
    return error_set(err, HEED_EARG, "%s is %lld, expected %d to %d", f->key, found, f->least,
                     f->most);
}

static enum heed_status check_rate(const struct field *f, double found, struct heed_error *err)
{
    if (found >= 0 && found < 1) return HEED_OK; /* false for NaN */
    return error_set(err, HEED_EARG, "%s is %.9g, expected at least 0 and less than 1", f->key,
                     found);
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
        const struct field *f = &FIELD[i];
        enum heed_status st =
            is_rate(f) ? check_rate(f, rate_get(c, f), err) : check_size(f, size_get(c, f), err);
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

/* ---- config.json ---- */

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
static json_t *config_json(const struct heed_config *c)
{
    json_t *root = json_pack("{s:s}", "model_type", "heed");
    for (int i = 0; root && i < FIELDS; i++) {
        const struct field *f = &FIELD[i];
        json_t *value =
            is_rate(f) ? json_real(rate_shorten(rate_get(c, f))) : json_integer(size_get(c, f));
        if (json_object_set_new(root, f->key, value) != 0) {
            json_decref(root);
            return NULL;
        }
    }
    return root;
}

char *config_format(const struct heed_config *c)
{
    json_t *root = config_json(c);
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

/* The range is checked before the number is narrowed to its field. */
static enum heed_status field_parse(struct heed_config *c, const struct field *f,
                                    const json_t *value, struct heed_error *err)
{
    if (!value) return error_set(err, HEED_EFORMAT, "key \"%s\" is missing", f->key);
    if (is_rate(f)) {
        if (!json_is_number(value))
            return error_set(err, HEED_EFORMAT, "\"%s\" is not a number", f->key);
        double found = json_number_value(value);
        enum heed_status st = check_rate(f, found, err);
        if (st) return st;
        rate_set(c, f, (float)found);
        return HEED_OK;
    }
    if (!json_is_integer(value))
        return error_set(err, HEED_EFORMAT, "\"%s\" is not a whole number", f->key);
    json_int_t found = json_integer_value(value);
    enum heed_status st = check_size(f, found, err);
    if (st) return st;
    size_set(c, f, (int)found);
    return HEED_OK;
}

static enum heed_status root_parse(struct heed_config *c, const json_t *root,
                                   struct heed_error *err)
{
    if (!json_is_object(root)) return error_set(err, HEED_EFORMAT, "not a JSON object");
    const char *kind = json_string_value(json_object_get(root, "model_type"));
    if (!kind) return error_set(err, HEED_EFORMAT, "key \"model_type\" is missing or not a string");
    if (strcmp(kind, "heed") != 0)
        return error_set(err, HEED_EFORMAT, "\"model_type\" is \"%.80s\", expected \"heed\"", kind);
    for (int i = 0; i < FIELDS; i++) {
        enum heed_status st = field_parse(c, &FIELD[i], json_object_get(root, FIELD[i].key), err);
        if (st) return st;
    }
    return config_check(c, err);
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

enum heed_status config_same(const struct heed_config *found, const struct heed_config *expected,
                             const char *path, struct heed_error *err)
{
    for (int i = 0; i < FIELDS; i++) {
        const struct field *f = &FIELD[i];
        if (is_rate(f)) {
            float x = rate_get(found, f), y = rate_get(expected, f);
            if (x != y)
                return error_set(err, HEED_EFORMAT, "%s: %s is %.9g, expected %.9g", path, f->key,
                                 rate_shorten(x), rate_shorten(y));
        } else {
            int x = size_get(found, f), y = size_get(expected, f);
            if (x != y)
                return error_set(err, HEED_EFORMAT, "%s: %s is %d, expected %d", path, f->key, x,
                                 y);
        }
    }
    return HEED_OK;
}
