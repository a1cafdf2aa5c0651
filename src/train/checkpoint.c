/*
 * checkpoint.c - saving and loading a run; see checkpoint.h for the layout.
 */
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
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
 * has no links, a copy. */
static enum heed_status publish(const struct checkpoint *c, const char *dir, struct heed_error *err)
{
    char from[PATH], to[PATH], tmp[PATH + 8];
    enum heed_status s = write_shape(c, c->out, err);
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

static const char *precision_name(enum heed_precision p)
{
    return p == HEED_BF16 ? "bf16" : "f32";
}

static char *progress_format(const struct progress *p)
{
    char seed[24]; /* as text: a 64-bit seed does not fit a JSON number everywhere */
    snprintf(seed, sizeof seed, "%" PRIu64, p->seed);
    json_t *j = json_pack(
        "{sI s{sI sI sI} s{sf sI} sI sf sI si ss si si ss}", "step", (json_int_t)p->step, "cursor",
        "epoch", (json_int_t)p->cursor.epoch, "pool", (json_int_t)p->cursor.pool, "batch",
        (json_int_t)p->cursor.batch, "guard", "norm", p->guard.norm, "seen",
        (json_int_t)p->guard.seen, "skipped", (json_int_t)p->skipped, "best", p->best, "best_step",
        (json_int_t)p->best_step, "stale", p->stale, "seed", seed, "batch_tokens", p->batch_tokens,
        "accumulate", p->accumulate, "precision", precision_name(p->precision));
    if (!j) return NULL;
    char *text = json_dumps(j, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(j);
    return text;
}

static enum heed_status progress_parse(struct progress *p, const char *text, size_t len,
                                       const char *path, struct heed_error *err)
{
    json_error_t why;
    json_t *j = json_loadb(text, len, 0, &why);
    if (!j) return error_set(err, HEED_EFORMAT, "%s is not JSON: %s", path, why.text);
    json_int_t step, epoch, pool, batch, seen, skipped, best_step;
    const char *seed, *precision;
    struct progress r = {0};
    int bad =
        json_unpack_ex(j, &why, 0, "{sI s{sI sI sI} s{sF sI} sI sF sI si ss si si ss}", "step",
                       &step, "cursor", "epoch", &epoch, "pool", &pool, "batch", &batch, "guard",
                       "norm", &r.guard.norm, "seen", &seen, "skipped", &skipped, "best", &r.best,
                       "best_step", &best_step, "stale", &r.stale, "seed", &seed, "batch_tokens",
                       &r.batch_tokens, "accumulate", &r.accumulate, "precision", &precision);
    if (bad) {
        error_set(err, HEED_EFORMAT, "%s: %s", path, why.text);
    } else if (step < 0 || epoch < 0 || pool < 0 || batch < 0) {
        bad = 1;
        error_set(err, HEED_EFORMAT, "%s: step and cursor must not be negative", path);
    } else {
        r.step = step, r.guard.seen = seen, r.skipped = skipped, r.best_step = best_step;
        r.cursor = (struct batch_cursor){epoch, pool, batch};
        r.seed = strtoull(seed, NULL, 10);
        r.precision = strcmp(precision, "bf16") ? HEED_F32 : HEED_BF16;
        *p = r;
    }
    json_decref(j);
    return bad ? HEED_EFORMAT : HEED_OK;
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
    int cap = 0;
    for (struct dirent *e; !s && (e = readdir(d));) {
        int64_t step;
        int end = 0;
        if (sscanf(e->d_name, "step-%" SCNd64 "%n", &step, &end) != 1) continue;
        if (e->d_name[end]) {
            s = file_join(path, sizeof path, dir, e->d_name, err);
            if (!s) s = file_remove_dir(path, err);
            continue;
        }
        if (*n == cap) {
            cap = cap ? 2 * cap : 16;
            int64_t *more = realloc(*steps, cap * sizeof *more);
            if (!more) {
                s = error_memory(err, cap * sizeof *more, "the list of checkpoints");
                break;
            }
            *steps = more;
        }
        int at = (*n)++;
        for (; at > 0 && (*steps)[at - 1] < step; at--) (*steps)[at] = (*steps)[at - 1];
        (*steps)[at] = step;
    }
    closedir(d);
    if (s) {
        free(*steps);
        *steps = NULL;
    }
    return s;
}

static enum heed_status prune(const char *out, int keep, struct heed_error *err)
{
    int64_t *steps;
    int n;
    enum heed_status s = list_steps(out, &steps, &n, err);
    if (s) return s;
    for (int i = keep < 1 ? 1 : keep; i < n && !s; i++) {
        char dir[PATH];
        s = step_dir(dir, out, steps[i], "", err);
        if (!s) s = file_remove_dir(dir, err);
    }
    free(steps);
    return s;
}

enum heed_status checkpoint_save(const struct checkpoint *c, const struct progress *p, int keep,
                                 struct heed_error *err)
{
    char tmp[PATH], dir[PATH], parent[PATH];
    enum heed_status s = step_dir(tmp, c->out, p->step, ".tmp", err);
    if (!s) s = step_dir(dir, c->out, p->step, "", err);
    if (!s) s = file_join(parent, sizeof parent, c->out, "checkpoints", err);
    if (s) return s;
    if (!file_exists(dir)) {
        if (!s) s = file_remove_dir(tmp, err);
        if (!s) s = write_shape(c, tmp, err);
        if (!s) s = write_weights(c, tmp, err);
        if (!s) s = write_state(c, p, tmp, err);
        if (!s && rename(tmp, dir)) s = error_errno(err, "cannot rename %s to %s", tmp, dir);
        if (!s) s = file_sync_dir(parent, err);
        if (s) file_remove_dir(tmp, NULL);
    }
    if (!s) s = publish(c, dir, err);
    if (!s) s = prune(c->out, keep, err);
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

enum heed_status checkpoint_config(const char *out, int64_t step, struct heed_config *config,
                                   struct heed_error *err)
{
    char dir[PATH], path[PATH];
    enum heed_status s = step_dir(dir, out, step, "", err);
    if (!s) s = file_join(path, sizeof path, dir, MODEL_CONFIG, err);
    if (!s) s = config_load(config, path, err);
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
