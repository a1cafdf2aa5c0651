/*
 * config_file.c - config.json: the configuration of a model as a JSON object.
 *
 * Every field of the table is one key. A key that is missing has the value that the table gives to
 * files from before there was such a field. Unknown keys and kinds are refused: a model that was
 * trained with something this program does not know would translate wrongly.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/locale.h"
#include "model/config.h"

enum {
    /* The format goes up when a key changes its meaning. A new key or kind needs no new format: an
     * older program refuses it by name. Format 1 had no key "format". */
    FORMAT = 2,
    FILE_MOST = 1 << 20, /* bytes of a config.json */
    RATE_DIGITS = 9      /* enough for any float */
};

/* ---- writing ---- */

/* NULL when out of memory. */
static json_t *field_format(const struct heed_config *c, const struct heed_config_field *f)
{
    char text[CONFIG_VALUE];
    config_show(text, c, f);
    switch (f->type) {
    case HEED_FIELD_INTEGER:
        return json_integer(strtoll(text, NULL, 10));
    case HEED_FIELD_RATE:
        return json_real(strtod(text, NULL));
    case HEED_FIELD_KIND:
        return json_string(text);
    case HEED_FIELD_SWITCH:
        return json_boolean(strcmp(text, "true") == 0);
    }
    return NULL;
}

/* NULL when out of memory. */
static json_t *root_format(const struct heed_config *c)
{
    const struct heed_config_field *f;
    json_t *root = json_pack("{s:s, s:i}", "model_type", "heed", "format", FORMAT);
    for (int i = 0; root && (f = heed_config_field_at(i)); i++) {
        if (json_object_set_new(root, f->name, field_format(c, f)) != 0) {
            json_decref(root);
            return NULL;
        }
    }
    return root;
}

char *config_format(const struct heed_config *c)
{
    struct c_locale locale = c_locale_enter();
    json_t *root = root_format(c);
    c_locale_leave(locale);
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

/* ---- reading ---- */

/* The sentence `why` with what a user of an older program needs to know. */
static enum heed_status unknown(const struct heed_error *why, struct heed_error *err)
{
    return error_set(err, HEED_EFORMAT, "%s (this program reads formats up to %d)", why->text,
                     FORMAT);
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

static bool is_key(const char *key)
{
    const struct heed_config_field *f;
    for (int i = 0; (f = heed_config_field_at(i)); i++)
        if (strcmp(key, f->name) == 0) return true;
    return strcmp(key, "model_type") == 0 || strcmp(key, "format") == 0;
}

static enum heed_status check_keys(json_t *root, struct heed_error *err)
{
    struct heed_error why;
    const char *key;
    json_t *value;
    json_object_foreach (root, key, value) {
        if (is_key(key)) continue;
        config_unknown_field(key, "key", &why);
        return unknown(&why, err);
    }
    return HEED_OK;
}

/* 17 digits give any double back, but turn 0.1 into 0.10000000000000001. */
static void real_show(char out[CONFIG_VALUE], double v)
{
    snprintf(out, CONFIG_VALUE, "%.15g", v);
    if (strtod(out, NULL) != v) snprintf(out, CONFIG_VALUE, "%.17g", v);
}

/* Sets the field from the text of its value. */
static enum heed_status field_parse(struct heed_config *c, const struct heed_config_field *f,
                                    const json_t *value, struct heed_error *err)
{
    char number[CONFIG_VALUE];
    switch (f->type) {
    case HEED_FIELD_INTEGER:
        if (!json_is_integer(value))
            return error_set(err, HEED_EFORMAT, "\"%s\" is not a whole number", f->name);
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        return heed_config_set(c, f->name, number, err);
    case HEED_FIELD_RATE:
        if (!json_is_number(value))
            return error_set(err, HEED_EFORMAT, "\"%s\" is not a number", f->name);
        real_show(number, json_number_value(value));
        return heed_config_set(c, f->name, number, err);
    case HEED_FIELD_SWITCH:
        if (!json_is_boolean(value))
            return error_set(err, HEED_EFORMAT, "\"%s\" is not true or false", f->name);
        return heed_config_set(c, f->name, json_is_true(value) ? "true" : "false", err);
    case HEED_FIELD_KIND:
        break;
    }
    struct heed_error why;
    if (!json_is_string(value))
        return error_set(err, HEED_EFORMAT, "\"%s\" is not a string", f->name);
    enum heed_status st = heed_config_set(c, f->name, json_string_value(value), &why);
    return st ? unknown(&why, err) : HEED_OK;
}

static enum heed_status root_parse(struct heed_config *c, json_t *root, struct heed_error *err)
{
    if (!json_is_object(root)) return error_set(err, HEED_EFORMAT, "not a JSON object");
    enum heed_status st = check_model_type(root, err);
    if (!st) st = check_format(root, err);
    if (!st) st = check_keys(root, err);
    const struct heed_config_field *f;
    for (int i = 0; !st && (f = heed_config_field_at(i)); i++) {
        const json_t *value = json_object_get(root, f->name);
        if (value) {
            st = field_parse(c, f, value, err);
        } else if (f->absent) {
            st = heed_config_set(c, f->name, f->absent, err);
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
    struct c_locale locale = c_locale_enter();
    enum heed_status st = root_parse(&read, root, &why);
    c_locale_leave(locale);
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
