/*
 * record.c - trainer.json; see record.h.
 *
 * One table lists the fields; writing, reading and comparing go through it, so that a new field is
 * one line in the table.
 */
#include "train/record.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/crc.h"
#include "store/directory.h"

const char *const record_file[RECORD_FILES] = {MODEL_CONFIG, MODEL_VOCAB, MODEL_WEIGHTS,
                                               "state.safetensors"};

static const char *const PRECISION[] = {"f32", "bf16", NULL};
static const char *const SCHEDULE[] = {"inverse-sqrt", "constant", NULL};
static const char *const BEST_BY[] = {"nll", "bleu", "chrf", NULL};

/* Largest numbers accepted: no run reaches them, and the trainer can still add to them. */
static const int64_t WHOLE64_MOST = INT64_C(1) << 60;
enum { WHOLE_MOST = 1 << 30 };

/* Whole numbers are not negative. A seed is written as text, because many readers of JSON cannot
 * represent 64 bits. */
enum kind { WHOLE64, WHOLE, REAL, RATE, TEXT, SEED, CHOICE };

struct field {
    const char *key;
    size_t offset; /* in struct progress */
    enum kind kind;
    const char *const *choices;
    const char *option; /* name of the field in errors, if it is part of the recipe; else NULL */
    bool of_best;       /* one of those by which the best are chosen; see record_same_run */
    bool newer;         /* older files lack it */
};

#define AT(member) offsetof(struct progress, member)
static const struct field FIELD[] = {
    {"step", AT(step), .kind = WHOLE64},
    {"epoch", AT(cursor[0].epoch), .kind = WHOLE64},
    {"pool", AT(cursor[0].pool), .kind = WHOLE64},
    {"batch", AT(cursor[0].batch), .kind = WHOLE64},
    {"guard_norm", AT(guard.norm), .kind = REAL},
    {"guard_seen", AT(guard.seen), .kind = WHOLE64},
    {"skipped", AT(skipped), .kind = WHOLE64},
    {"skips", AT(skips), .kind = WHOLE},
    {"regular", AT(regular), .kind = WHOLE64},
    {"rollbacks", AT(rollbacks), .kind = WHOLE},
    {"rollback_step", AT(rollback_step), .kind = WHOLE64},
    {"validated", AT(validated), .kind = WHOLE64},
    {"best", AT(best), .kind = REAL},
    {"best_step", AT(best_step), .kind = WHOLE64},
    {"stale", AT(stale), .kind = WHOLE},
    {"seed", AT(recipe.seed), .kind = SEED, .option = "--seed"},
    {"batch_tokens", AT(recipe.batch_tokens), .kind = WHOLE, .option = "--batch-tokens"},
    {"accumulate", AT(recipe.accumulate), .kind = WHOLE, .option = "--accumulate"},
    {"shards", AT(recipe.shards), .kind = WHOLE, .option = "--shards", .newer = true},
    {"precision", AT(recipe.precision), .kind = CHOICE, .choices = PRECISION,
     .option = "--precision"},
    {"subword_dropout", AT(recipe.subword_dropout), .kind = RATE, .option = "--subword-dropout",
     .newer = true},
    {"data", AT(recipe.data), .kind = TEXT, .option = "training text of", .newer = true},
    {"mix", AT(recipe.mix), .kind = TEXT, .option = "weights of the training text", .newer = true},
    {"warmup", AT(recipe.warmup), .kind = WHOLE, .option = "--warmup", .newer = true},
    {"lr", AT(recipe.peak_lr), .kind = RATE, .option = "--lr", .newer = true},
    {"schedule", AT(recipe.schedule), .kind = CHOICE, .choices = SCHEDULE, .option = "--schedule",
     .newer = true},
    {"train_length", AT(recipe.train_length), .kind = WHOLE, .option = "--train-length",
     .newer = true},
    {"beta1", AT(recipe.beta1), .kind = RATE, .option = "--beta1", .newer = true},
    {"beta2", AT(recipe.beta2), .kind = RATE, .option = "--beta2", .newer = true},
    {"epsilon", AT(recipe.epsilon), .kind = RATE, .option = "--epsilon", .newer = true},
    {"label_smoothing", AT(recipe.label_smoothing), .kind = RATE, .option = "--label-smoothing",
     .newer = true},
    {"clip", AT(recipe.clip), .kind = RATE, .option = "--clip", .newer = true},
    {"valid", AT(recipe.valid), .kind = TEXT, .option = "validation text of", .of_best = true,
     .newer = true},
    {"best_by", AT(recipe.best_by), .kind = CHOICE, .choices = BEST_BY, .option = "--best-by",
     .of_best = true, .newer = true},
    {"valid_tokenize", AT(recipe.valid_tokenize), .kind = TEXT, .option = "--valid-tokenize",
     .of_best = true, .newer = true},
    {"config.json", AT(file[0]), .kind = TEXT, .newer = true},
    {"vocab.model", AT(file[1]), .kind = TEXT, .newer = true},
    {"model.safetensors", AT(file[2]), .kind = TEXT, .newer = true},
    {"state.safetensors", AT(file[3]), .kind = TEXT, .newer = true},
};
enum { FIELDS = sizeof FIELD / sizeof *FIELD };

static json_t *field_format(const struct field *f, const void *v)
{
    char seed[24];
    switch (f->kind) {
    case WHOLE64:
        return json_integer(*(const int64_t *)v);
    case WHOLE:
        return json_integer(*(const int *)v);
    case REAL:
        return json_real(*(const double *)v);
    case RATE:
        return json_real((double)*(const float *)v);
    case TEXT:
        return json_string(v);
    case SEED:
        snprintf(seed, sizeof seed, "%" PRIu64, *(const uint64_t *)v);
        return json_string(seed);
    case CHOICE:
        return json_string(f->choices[*(const int *)v]);
    }
    return NULL;
}

static bool seed_parse(uint64_t *seed, const char *text)
{
    char *end;
    if (!text || !*text || strspn(text, "0123456789") != strlen(text)) return false;
    *seed = strtoull(text, &end, 10);
    return *end == '\0';
}

static bool field_parse(const struct field *f, void *v, const json_t *value)
{
    json_int_t n = json_integer_value(value);
    bool whole = json_is_integer(value) && n >= 0 && n <= WHOLE64_MOST;
    const char *text = json_string_value(value);
    switch (f->kind) {
    case WHOLE64:
        *(int64_t *)v = n;
        return whole;
    case WHOLE:
        *(int *)v = (int)n;
        return whole && n <= WHOLE_MOST;
    case REAL:
        *(double *)v = json_number_value(value);
        return json_is_number(value);
    case RATE:
        *(float *)v = (float)json_number_value(value);
        return json_is_number(value);
    case TEXT:
        return text && snprintf(v, FINGERPRINT_MAX, "%s", text) < FINGERPRINT_MAX;
    case SEED:
        return seed_parse(v, text);
    case CHOICE:
        for (int i = 0; text && f->choices[i]; i++)
            if (strcmp(text, f->choices[i]) == 0) return *(int *)v = i, true;
    }
    return false;
}

/* ---- cursors ---- */

static const char CURSORS[] = "cursors";

/* The cursors of all shards, of a run that has several. */
static json_t *cursors_format(const struct progress *p)
{
    json_t *list = json_array();
    for (int i = 0; i < p->recipe.shards; i++) {
        const struct batch_cursor *c = &p->cursor[i];
        json_t *one =
            json_pack("[III]", (json_int_t)c->epoch, (json_int_t)c->pool, (json_int_t)c->batch);
        if (json_array_append_new(list, one)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static bool cursors_parse(struct progress *p, const json_t *list)
{
    bool good = (int)json_array_size(list) == p->recipe.shards;
    for (int i = 0; i < p->recipe.shards && good; i++) {
        const json_t *one = json_array_get(list, (size_t)i);
        int64_t *v[] = {&p->cursor[i].epoch, &p->cursor[i].pool, &p->cursor[i].batch};
        const struct field whole = {.kind = WHOLE64};
        for (size_t k = 0; k < sizeof v / sizeof *v && good; k++)
            good = field_parse(&whole, v[k], json_array_get(one, k));
    }
    return good;
}

/* ---- checksum ---- */

static const char CRC[] = "crc32";

/* The CRC-32 of all keys but its own, written in sorted order and without white space. Returns
 * false when out of memory. */
static bool crc_of(const json_t *j, char out[9])
{
    json_t *others = json_copy((json_t *)j);
    if (!others) return false;
    json_object_del(others, CRC);
    char *text = json_dumps(others, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    bool good = text != NULL;
    if (good) snprintf(out, 9, "%08" PRIx32, crc_add(0, text, strlen(text)));
    free(text);
    json_decref(others);
    return good;
}

static enum heed_status check_crc(const json_t *j, const char *path, struct heed_error *err)
{
    char found[9];
    const json_t *value = json_object_get(j, CRC);
    const char *expected = json_string_value(value);
    if (!value) return HEED_OK;
    if (!crc_of(j, found)) return error_memory(err, 1024, path);
    if (expected && strcmp(found, expected) == 0) return HEED_OK;
    return error_set(err, HEED_EFORMAT,
                     "%s is damaged or was edited: the CRC-32 of its content is %s, expected %.40s",
                     path, found, expected ? expected : "a string");
}

/* ---- the whole ---- */

char *record_format(const struct progress *p)
{
    char crc[9], *text = NULL;
    json_t *j = json_object();
    bool good = j;
    for (int i = 0; good && i < FIELDS; i++)
        good = json_object_set_new(j, FIELD[i].key,
                                   field_format(&FIELD[i], (const char *)p + FIELD[i].offset)) == 0;
    if (good && p->recipe.shards > 1)
        good = json_object_set_new(j, CURSORS, cursors_format(p)) == 0;
    good = good && crc_of(j, crc) && json_object_set_new(j, CRC, json_string(crc)) == 0;
    if (good) text = json_dumps(j, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(j);
    return text;
}

/* Older files have a flag that says whether `best` is BLEU or nll. If the run is now to choose by
 * another figure, it has no best yet. */
static void older_best(struct progress *p, const json_t *j, const struct recipe *given)
{
    if (json_object_get(j, "best_by")) return;
    bool bleu = json_is_true(json_object_get(j, "best_is_bleu"));
    if (given->best_by != (bleu ? HEED_BEST_BLEU : HEED_BEST_NLL)) p->best_step = p->stale = 0;
}

static enum heed_status object_parse(struct progress *p, const struct recipe *given,
                                     const json_t *j, const char *path, struct heed_error *err)
{
    struct progress r = {.recipe = *given};
    /* A file without these options belongs to a run that did not have them. */
    r.recipe.subword_dropout = 0;
    r.recipe.schedule = HEED_SCHEDULE_INVERSE_SQRT;
    r.recipe.train_length = 0;
    snprintf(r.recipe.mix, sizeof r.recipe.mix, "%s", FINGERPRINT_EQUAL);
    r.recipe.shards = 1;
    enum heed_status s = check_crc(j, path, err);
    for (int i = 0; !s && i < FIELDS; i++) {
        const struct field *f = &FIELD[i];
        const json_t *value = json_object_get(j, f->key);
        if (!value && f->newer) continue;
        if (!field_parse(f, (char *)&r + f->offset, value))
            s = error_set(err, HEED_EFORMAT, "%s: \"%s\" is missing or not valid", path, f->key);
    }
    if (!s && !shards_valid(r.recipe.shards))
        s = error_set(err, HEED_EFORMAT, "%s: \"shards\" is %d, expected a power of two up to %d",
                      path, r.recipe.shards, SHARDS_MAX);
    if (!s && r.recipe.shards > 1 && !cursors_parse(&r, json_object_get(j, CURSORS)))
        s = error_set(err, HEED_EFORMAT, "%s: \"%s\" is missing or not valid", path, CURSORS);
    if (s) return s;
    older_best(&r, j, given);
    *p = r;
    return HEED_OK;
}

enum heed_status record_parse(struct progress *p, const struct recipe *given, const char *text,
                              size_t len, const char *path, struct heed_error *err)
{
    json_error_t why;
    json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    if (!j && !why.text[0]) return error_memory(err, len, path);
    if (!j) return error_set(err, HEED_EFORMAT, "%s is not JSON: %s", path, why.text);
    enum heed_status s = object_parse(p, given, j, path, err);
    json_decref(j);
    return s;
}

/* ---- comparing ---- */

enum { VALUE_MAX = FINGERPRINT_MAX };

/* Writes a value as a user would type it; a float with the fewest digits that read back as the same
 * float. */
static void field_show(char out[VALUE_MAX], const struct field *f, const void *v)
{
    out[0] = '\0';
    switch (f->kind) {
    case WHOLE64:
    case REAL: /* not used in a recipe */
        break;
    case WHOLE:
        snprintf(out, VALUE_MAX, "%d", *(const int *)v);
        break;
    case RATE:
        for (int digits = 1; digits <= 9; digits++) {
            snprintf(out, VALUE_MAX, "%.*g", digits, (double)*(const float *)v);
            if (strtof(out, NULL) == *(const float *)v) break;
        }
        break;
    case TEXT:
        snprintf(out, VALUE_MAX, "%s", (const char *)v);
        break;
    case SEED:
        snprintf(out, VALUE_MAX, "%" PRIu64, *(const uint64_t *)v);
        break;
    case CHOICE:
        snprintf(out, VALUE_MAX, "%s", f->choices[*(const int *)v]);
        break;
    }
}

enum heed_status record_same_run(const struct recipe *run, const struct recipe *given,
                                 const char *out, struct heed_error *err)
{
    bool both_validate = run->valid[0] && given->valid[0];
    for (int i = 0; i < FIELDS; i++) {
        const struct field *f = &FIELD[i];
        size_t offset = f->offset - AT(recipe);
        char x[VALUE_MAX], y[VALUE_MAX];
        if (!f->option || (f->of_best && !both_validate)) continue;
        field_show(x, f, (const char *)run + offset);
        field_show(y, f, (const char *)given + offset);
        if (strcmp(x, y) != 0)
            return error_set(
                err, HEED_EARG,
                "%s was begun with %s %s, found %s: a resumed run must keep its options", out,
                f->option, x, y);
    }
    return HEED_OK;
}

char *record_options(const struct recipe *r)
{
    enum { LINE_MAX_BYTES = 128 };
    char *text = calloc(FIELDS, LINE_MAX_BYTES), value[VALUE_MAX];
    size_t len = 0;
    for (int i = 0; i < FIELDS && text; i++) {
        if (!FIELD[i].option) continue;
        field_show(value, &FIELD[i], (const char *)r + FIELD[i].offset - AT(recipe));
        len += (size_t)snprintf(text + len, LINE_MAX_BYTES, "%s %s\n", FIELD[i].option, value);
    }
    return text;
}
