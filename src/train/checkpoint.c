/*
 * checkpoint.c - saving and loading a run; see checkpoint.h for the layout.
 */
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "model/config.h"
#include "model/files.h"
#include "text/tokenizer.h"

enum { PATH = 4096 };

static enum heed_status step_dir(char *dir, const char *out, int64_t step, const char *suffix,
                                 struct heed_error *err)
{
    char name[64];
    snprintf(name, sizeof name, "checkpoints/step-%08" PRId64 "%s", step, suffix);
    return file_join(dir, PATH, out, name, err);
}

/* ---- a model directory ---- */

/* config.json and vocab.model in dir, which is made when missing. */
static enum heed_status write_shape(const struct checkpoint *c, const char *dir,
                                    struct heed_error *err)
{
    char path[PATH];
    struct file_part part;
    enum heed_status s = file_mkdir(dir, err);
    if (!s) s = file_join(path, sizeof path, dir, MODEL_VOCAB, err);
    if (!s) {
        part.data = tokenizer_bytes(c->tokenizer, &part.len);
        s = file_write(path, &part, 1, err);
    }
    if (!s) s = file_join(path, sizeof path, dir, MODEL_CONFIG, err);
    if (!s) {
        char *json = config_format(&c->p->config);
        if (!json) return error_memory(err, 1024, path);
        part = (struct file_part){json, strlen(json)};
        s = file_write(path, &part, 1, err);
        free(json);
    }
    return s;
}

static enum heed_status write_weights(const struct checkpoint *c, const char *dir,
                                      struct heed_error *err)
{
    char path[PATH];
    enum heed_status s = file_join(path, sizeof path, dir, MODEL_WEIGHTS, err);
    if (!s) s = parameters_save(c->p, &(struct flat){"", c->p->master}, 1, path, err);
    return s;
}

enum heed_status checkpoint_best(const struct checkpoint *c, struct heed_error *err)
{
    char dir[PATH];
    enum heed_status s = file_join(dir, sizeof dir, c->out, "best", err);
    if (!s) s = write_shape(c, dir, err);
    if (!s) s = write_weights(c, dir, err);
    return s;
}

/* OUT/model.safetensors becomes another name of the checkpoint's file, or where the file system
 * has no links, a copy of the weights, which are still those of the checkpoint. */
enum heed_status checkpoint_publish(const struct checkpoint *c, int64_t step,
                                    struct heed_error *err)
{
    char dir[PATH], from[PATH], to[PATH], tmp[PATH + 8];
    enum heed_status s = step_dir(dir, c->out, step, "", err);
    if (!s) s = write_shape(c, c->out, err);
    if (!s) s = file_join(from, sizeof from, dir, MODEL_WEIGHTS, err);
    if (!s) s = file_join(to, sizeof to, c->out, MODEL_WEIGHTS, err);
    if (s) return s;
    snprintf(tmp, sizeof tmp, "%s.tmp", to);
    unlink(tmp);
    if (link(from, tmp)) return write_weights(c, c->out, err);
    if (rename(tmp, to)) return error_errno(err, "cannot rename %s to %s", tmp, to);
    return file_sync_dir(c->out, err);
}

/* ---- trainer.json ---- */

/* One table lists the fields; writing and reading walk it. A whole number is not negative. */
struct field {
    const char *key;
    size_t offset;
    enum { WHOLE64, WHOLE, REAL, FLAG } kind;
};

static const struct field FIELD[] = {
    {"step", offsetof(struct progress, step), WHOLE64},
    {"epoch", offsetof(struct progress, cursor.epoch), WHOLE64},
    {"pool", offsetof(struct progress, cursor.pool), WHOLE64},
    {"batch", offsetof(struct progress, cursor.batch), WHOLE64},
    {"guard_norm", offsetof(struct progress, guard.norm), REAL},
    {"guard_seen", offsetof(struct progress, guard.seen), WHOLE64},
    {"skipped", offsetof(struct progress, skipped), WHOLE64},
    {"skips", offsetof(struct progress, skips), WHOLE},
    {"regular", offsetof(struct progress, regular), WHOLE64},
    {"rollbacks", offsetof(struct progress, rollbacks), WHOLE},
    {"rollback_step", offsetof(struct progress, rollback_step), WHOLE64},
    {"validated", offsetof(struct progress, validated), WHOLE64},
    {"best", offsetof(struct progress, best), REAL},
    {"best_is_bleu", offsetof(struct progress, best_is_bleu), FLAG},
    {"best_step", offsetof(struct progress, best_step), WHOLE64},
    {"stale", offsetof(struct progress, stale), WHOLE},
    {"batch_tokens", offsetof(struct progress, batch_tokens), WHOLE},
    {"accumulate", offsetof(struct progress, accumulate), WHOLE},
};
enum { FIELDS = sizeof FIELD / sizeof *FIELD };

static json_t *field_format(const struct field *f, const void *v)
{
    switch (f->kind) {
    case WHOLE64:
        return json_integer(*(const int64_t *)v);
    case WHOLE:
        return json_integer(*(const int *)v);
    case REAL:
        return json_real(*(const double *)v);
    case FLAG:
        return json_boolean(*(const bool *)v);
    }
    return NULL;
}

static bool field_parse(const struct field *f, void *v, const json_t *value)
{
    json_int_t n = json_integer_value(value);
    bool whole = json_is_integer(value) && n >= 0;
    switch (f->kind) {
    case WHOLE64:
        *(int64_t *)v = n;
        return whole;
    case WHOLE:
        *(int *)v = (int)n;
        return whole && n <= INT_MAX;
    case REAL:
        *(double *)v = json_number_value(value);
        return json_is_number(value);
    case FLAG:
        *(bool *)v = json_is_true(value);
        return json_is_boolean(value);
    }
    return false;
}

/* NULL when out of memory. */
static char *progress_format(const struct progress *p)
{
    char seed[24]; /* as text: a 64-bit seed does not fit a JSON number everywhere */
    snprintf(seed, sizeof seed, "%" PRIu64, p->seed);
    json_t *j = json_pack("{ss ss sf}", "seed", seed, "precision", precision_name(p->precision),
                          "subword_dropout", (double)p->subword_dropout);
    bool good = j;
    for (int i = 0; good && i < FIELDS; i++)
        good = json_object_set_new(j, FIELD[i].key,
                                   field_format(&FIELD[i], (const char *)p + FIELD[i].offset)) == 0;
    char *text = good ? json_dumps(j, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(j);
    return text;
}

static enum heed_status progress_parse(struct progress *p, const char *text, size_t len,
                                       const char *path, struct heed_error *err)
{
    json_error_t why;
    const char *seed, *precision;
    double subword_dropout = 0; /* checkpoints from before there was any do not name it */
    struct progress r = {0};
    json_t *j = json_loadb(text, len, 0, &why);
    if (!j) return error_set(err, HEED_EFORMAT, "%s is not JSON: %s", path, why.text);
    enum heed_status s = HEED_OK;
    if (json_unpack_ex(j, &why, 0, "{ss ss s?F}", "seed", &seed, "precision", &precision,
                       "subword_dropout", &subword_dropout))
        s = error_set(err, HEED_EFORMAT, "%s: %s", path, why.text);
    for (int i = 0; !s && i < FIELDS; i++)
        if (!field_parse(&FIELD[i], (char *)&r + FIELD[i].offset, json_object_get(j, FIELD[i].key)))
            s = error_set(err, HEED_EFORMAT, "%s: \"%s\" is missing or makes no sense", path,
                          FIELD[i].key);
    if (!s) {
        r.seed = strtoull(seed, NULL, 10);
        r.subword_dropout = (float)subword_dropout;
        r.precision = strcmp(precision, "bf16") ? HEED_F32 : HEED_BF16;
        *p = r;
    }
    json_decref(j);
    return s;
}

/* ---- save ---- */

static enum heed_status write_state(const struct checkpoint *c, const struct progress *p,
                                    const char *dir, struct heed_error *err)
{
    char path[PATH];
    struct flat moments[] = {{"m.", c->opt->m}, {"v.", c->opt->v}};
    enum heed_status s = file_join(path, sizeof path, dir, "state.safetensors", err);
    if (!s) s = parameters_save(c->p, moments, 2, path, err);
    if (!s) s = file_join(path, sizeof path, dir, "trainer.json", err);
    if (s) return s;
    char *json = progress_format(p);
    if (!json) return error_memory(err, 1024, path);
    s = file_write(path, &(struct file_part){json, strlen(json)}, 1, err);
    free(json);
    return s;
}

/* Names under which a checkpoint is written and removed; whoever finds one is free to remove it. */
static const char WRITTEN[] = ".tmp", REMOVED[] = ".old";

static enum heed_status steps_add(int64_t **steps, int *n, int64_t step, struct heed_error *err)
{
    int64_t *more = realloc(*steps, (size_t)(*n + 1) * sizeof *more);
    if (!more) return error_memory(err, (size_t)(*n + 1) * sizeof *more, "the list of checkpoints");
    int at = (*n)++;
    for (; at > 0 && more[at - 1] < step; at--) more[at] = more[at - 1];
    more[at] = step;
    *steps = more;
    return HEED_OK;
}

/* The steps on disk, newest first, malloced. Leftovers of an interrupted save are removed. */
static enum heed_status list_steps(const char *out, int64_t **steps, int *n, struct heed_error *err)
{
    char dir[PATH], path[PATH];
    enum heed_status s = file_join(dir, sizeof dir, out, "checkpoints", err);
    if (s) return s;
    *steps = NULL;
    *n = 0;
    DIR *d = opendir(dir);
    if (!d) return errno == ENOENT ? HEED_OK : error_errno(err, "cannot read directory %s", dir);
    while (!s) {
        int64_t step;
        int end = 0;
        errno = 0;
        struct dirent *e = readdir(d);
        if (!e && errno) s = error_errno(err, "cannot read directory %s", dir);
        if (!e) break;
        if (sscanf(e->d_name, "step-%" SCNd64 "%n", &step, &end) != 1) continue;
        const char *suffix = e->d_name + end;
        if (!*suffix) {
            s = steps_add(steps, n, step, err);
        } else if (strcmp(suffix, WRITTEN) == 0 || strcmp(suffix, REMOVED) == 0) {
            s = file_join(path, sizeof path, dir, e->d_name, err);
            if (!s) s = file_remove_dir(path, err);
        }
    }
    closedir(d);
    if (s) {
        free(*steps);
        *steps = NULL;
    }
    return s;
}

/* A checkpoint gets another name before its files go, so that a kill between two of them leaves
 * nothing half that is called step-N. */
static enum heed_status remove_step(const char *out, int64_t step, struct heed_error *err)
{
    char dir[PATH], aside[PATH], parent[PATH];
    enum heed_status s = step_dir(dir, out, step, "", err);
    if (!s) s = step_dir(aside, out, step, REMOVED, err);
    if (!s) s = file_join(parent, sizeof parent, out, "checkpoints", err);
    if (!s && rename(dir, aside)) s = error_errno(err, "cannot rename %s to %s", dir, aside);
    if (!s) s = file_sync_dir(parent, err);
    if (!s) s = file_remove_dir(aside, err);
    return s;
}

static enum heed_status prune(const char *out, int keep, int64_t regular, struct heed_error *err)
{
    int64_t *steps;
    int n;
    enum heed_status s = list_steps(out, &steps, &n, err);
    if (s) return s;
    for (int i = keep; i < n && !s; i++)
        if (steps[i] != regular) s = remove_step(out, steps[i], err);
    free(steps);
    return s;
}

enum heed_status checkpoint_save(const struct checkpoint *c, const struct progress *p, int keep,
                                 struct heed_error *err)
{
    char tmp[PATH], dir[PATH], parent[PATH];
    enum heed_status s = step_dir(tmp, c->out, p->step, WRITTEN, err);
    if (!s) s = step_dir(dir, c->out, p->step, "", err);
    if (!s) s = file_join(parent, sizeof parent, c->out, "checkpoints", err);
    if (s) return s;
    s = file_remove_dir(tmp, err);
    if (!s) s = write_shape(c, tmp, err);
    if (!s) s = write_weights(c, tmp, err);
    if (!s) s = write_state(c, p, tmp, err);
    if (!s && rename(tmp, dir)) s = error_errno(err, "cannot rename %s to %s", tmp, dir);
    if (!s) s = file_sync_dir(parent, err);
    if (s) file_remove_dir(tmp, NULL);
    if (!s) s = checkpoint_publish(c, p->step, err);
    if (!s) s = prune(c->out, keep, p->regular, err);
    return s;
}

/* ---- load ---- */

enum heed_status checkpoint_newest(const char *out, int64_t *step, struct heed_error *err)
{
    int64_t *steps;
    int n;
    enum heed_status s = list_steps(out, &steps, &n, err);
    if (s) return s;
    *step = n ? steps[0] : 0;
    free(steps);
    return HEED_OK;
}

enum heed_status checkpoint_check(const struct checkpoint *c, int64_t step, struct heed_error *err)
{
    char dir[PATH], path[PATH];
    struct heed_config found;
    struct file_part vocab;
    bool same = false;
    enum heed_status s = step_dir(dir, c->out, step, "", err);
    if (!s) s = file_join(path, sizeof path, dir, MODEL_CONFIG, err);
    if (!s) s = config_load(&found, path, err);
    if (!s) s = config_same(&found, &c->p->config, path, err);
    if (!s) s = file_join(path, sizeof path, dir, MODEL_VOCAB, err);
    vocab.data = tokenizer_bytes(c->tokenizer, &vocab.len);
    if (!s) s = file_same(path, vocab, &same, err);
    if (!s && !same)
        s = error_set(err, HEED_EARG, "%s is another vocabulary than the one given", path);
    return s;
}

enum heed_status checkpoint_load(const struct checkpoint *c, int64_t step, struct progress *p,
                                 struct heed_error *err)
{
    char dir[PATH], path[PATH], *text = NULL;
    size_t len;
    struct progress r;
    struct flat moments[] = {{"m.", c->opt->m}, {"v.", c->opt->v}};
    enum heed_status s = step_dir(dir, c->out, step, "", err);
    if (!s) s = file_join(path, sizeof path, dir, "trainer.json", err);
    if (!s) s = file_read(path, 1 << 20, &text, &len, err);
    if (!s) s = progress_parse(&r, text, len, path, err);
    if (!s) s = file_join(path, sizeof path, dir, "state.safetensors", err);
    if (!s) s = parameters_load(c->p, moments, 2, path, err);
    if (!s) s = file_join(path, sizeof path, dir, MODEL_WEIGHTS, err);
    if (!s) s = parameters_load(c->p, &(struct flat){"", c->p->master}, 1, path, err);
    free(text);
    if (!s) *p = r;
    return s;
}
