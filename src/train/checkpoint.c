/*
 * checkpoint.c - saving and loading a run; see checkpoint.h for the layout.
 */
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "store/directory.h"
#include "store/weights.h"

static const char STATE[] = "state.safetensors", RECORD[] = "trainer.json";

static enum heed_status step_dir(char *dir, const char *out, int64_t step, const char *suffix,
                                 struct heed_error *err)
{
    char name[64];
    snprintf(name, sizeof name, "checkpoints/step-%08" PRId64 "%s", step, suffix);
    return file_join(dir, FILE_PATH_MAX, out, name, err);
}

/* ---- a model directory ---- */

enum heed_status checkpoint_best(const struct checkpoint *c, struct heed_error *err)
{
    char dir[FILE_PATH_MAX];
    enum heed_status s = file_join(dir, sizeof dir, c->out, "best", err);
    return s ? s : directory_save(dir, c->p, c->master, c->tokenizer, err);
}

static enum heed_status copy_file(const char *from, const char *to, struct heed_error *err)
{
    char *data = NULL;
    size_t len;
    enum heed_status s = file_read(from, SIZE_MAX - 1, &data, &len, err);
    if (!s) s = file_write(to, &(struct file_part){data, len}, 1, err);
    free(data);
    return s;
}

/* Makes OUT/model.safetensors a hard link to the checkpoint's file or, where the file system has no
 * links, a copy of it. */
enum heed_status checkpoint_publish(const struct checkpoint *c, int64_t step,
                                    struct heed_error *err)
{
    char dir[FILE_PATH_MAX], from[FILE_PATH_MAX], to[FILE_PATH_MAX], tmp[FILE_PATH_MAX + 8];
    enum heed_status s = step_dir(dir, c->out, step, "", err);
    if (!s) s = directory_begin(c->out, &c->p->config, c->tokenizer, err);
    if (!s) s = directory_weights(from, dir, err);
    if (!s) s = directory_weights(to, c->out, err);
    if (s) return s;
    snprintf(tmp, sizeof tmp, "%s.tmp", to);
    unlink(tmp);
    if (link(from, tmp)) return copy_file(from, to, err);
    if (rename(tmp, to)) return error_errno(err, "cannot rename %s to %s", tmp, to);
    return file_sync_dir(c->out, err);
}

/* ---- save ---- */

static enum heed_status write_moments(const struct checkpoint *c, const char *dir,
                                      struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    struct flat moments[] = {{.prefix = "m.", .m = c->opt->m, .host = c->m},
                             {.prefix = "v.", .m = c->opt->v, .host = c->v}};
    enum heed_status s = file_join(path, sizeof path, dir, STATE, err);
    if (!s) s = weights_save(c->p, moments, 2, path, err);
    return s;
}

/* Writes trainer.json. It is the last file of a checkpoint, because it has the fingerprints of the
 * others. */
static enum heed_status write_record(const struct progress *p, const char *dir,
                                     struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    struct progress r = *p;
    enum heed_status s = HEED_OK;
    for (int i = 0; i < RECORD_FILES && !s; i++) {
        s = file_join(path, sizeof path, dir, record_file[i], err);
        if (!s) s = fingerprint_file(r.file[i], path, err);
    }
    if (!s) s = file_join(path, sizeof path, dir, RECORD, err);
    if (s) return s;
    char *json = record_format(&r);
    if (!json) return error_memory(err, 1024, path);
    s = file_write(path, &(struct file_part){json, strlen(json)}, 1, err);
    free(json);
    return s;
}

/* Suffixes of a checkpoint's name while it is being written and while it is being removed. A
 * directory that a kill leaves under such a name is removed at the next start. */
static const char BEING_WRITTEN[] = ".tmp", BEING_REMOVED[] = ".old";

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

enum heed_status checkpoint_list(const char *out, int64_t **steps, int *n, struct heed_error *err)
{
    char dir[FILE_PATH_MAX], path[FILE_PATH_MAX];
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
        } else if (strcmp(suffix, BEING_WRITTEN) == 0 || strcmp(suffix, BEING_REMOVED) == 0) {
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

/* Renames the checkpoint of a step to `to`, which must not exist. */
static enum heed_status rename_step(const char *out, int64_t step, const char *to,
                                    struct heed_error *err)
{
    char dir[FILE_PATH_MAX], parent[FILE_PATH_MAX];
    enum heed_status s = step_dir(dir, out, step, "", err);
    if (!s) s = file_join(parent, sizeof parent, out, "checkpoints", err);
    if (!s && rename(dir, to)) s = error_errno(err, "cannot rename %s to %s", dir, to);
    if (!s) s = file_sync_dir(parent, err);
    return s;
}

/* Renames a checkpoint before its files are removed, so that a kill in between leaves no incomplete
 * directory called step-N. */
static enum heed_status remove_step(const char *out, int64_t step, struct heed_error *err)
{
    char aside[FILE_PATH_MAX];
    enum heed_status s = step_dir(aside, out, step, BEING_REMOVED, err);
    if (!s) s = rename_step(out, step, aside, err);
    if (!s) s = file_remove_dir(aside, err);
    return s;
}

enum heed_status checkpoint_set_aside(const char *out, int64_t step, struct heed_error *err)
{
    char name[64], aside[FILE_PATH_MAX];
    snprintf(name, sizeof name, "checkpoints/damaged-step-%08" PRId64, step);
    enum heed_status s = file_join(aside, sizeof aside, out, name, err);
    if (!s) s = file_remove_dir(aside, err); /* left from an earlier damage at this step */
    if (!s) s = rename_step(out, step, aside, err);
    return s;
}

static enum heed_status prune(const char *out, int keep, int64_t regular, struct heed_error *err)
{
    int64_t *steps;
    int n;
    enum heed_status s = checkpoint_list(out, &steps, &n, err);
    if (s) return s;
    for (int i = keep; i < n && !s; i++)
        if (steps[i] != regular) s = remove_step(out, steps[i], err);
    free(steps);
    return s;
}

enum heed_status checkpoint_save(const struct checkpoint *c, const struct progress *p, int keep,
                                 struct heed_error *err)
{
    char tmp[FILE_PATH_MAX], dir[FILE_PATH_MAX], parent[FILE_PATH_MAX];
    enum heed_status s = step_dir(tmp, c->out, p->step, BEING_WRITTEN, err);
    if (!s) s = step_dir(dir, c->out, p->step, "", err);
    if (!s) s = file_join(parent, sizeof parent, c->out, "checkpoints", err);
    if (s) return s;
    s = file_remove_dir(tmp, err);
    if (!s) s = directory_save(tmp, c->p, c->master, c->tokenizer, err);
    if (!s) s = write_moments(c, tmp, err);
    if (!s) s = write_record(p, tmp, err);
    if (!s && rename(tmp, dir)) s = error_errno(err, "cannot rename %s to %s", tmp, dir);
    if (!s) s = file_sync_dir(parent, err);
    if (s) file_remove_dir(tmp, NULL);
    if (!s) s = checkpoint_publish(c, p->step, err);
    if (!s) s = prune(c->out, keep, p->regular, err);
    return s;
}

/* ---- load ---- */

/* Compares the files of a checkpoint with the fingerprints in its record. Older records lack some;
 * those files are not compared. */
static enum heed_status check_files(const struct progress *p, const char *dir,
                                    struct heed_error *err)
{
    char path[FILE_PATH_MAX], found[FINGERPRINT_MAX];
    for (int i = 0; i < RECORD_FILES; i++) {
        enum heed_status s = file_join(path, sizeof path, dir, record_file[i], err);
        if (!s) s = fingerprint_file(found, path, err);
        if (s) return s;
        if (p->file[i][0] && strcmp(found, p->file[i]) != 0)
            return error_set(err, HEED_EFORMAT,
                             "%s is damaged or of another checkpoint: it has %s, expected %s", path,
                             found, p->file[i]);
    }
    return HEED_OK;
}

enum heed_status checkpoint_read(const struct checkpoint *c, int64_t step,
                                 const struct recipe *given, struct progress *p,
                                 struct heed_error *err)
{
    char dir[FILE_PATH_MAX], path[FILE_PATH_MAX], *text = NULL;
    size_t len;
    struct progress r;
    struct heed_config config;
    enum heed_status s = step_dir(dir, c->out, step, "", err);
    if (!s) s = file_join(path, sizeof path, dir, RECORD, err);
    if (!s) s = file_read(path, 1 << 20, &text, &len, err);
    if (!s) s = record_parse(&r, given, text, len, path, err);
    free(text);
    if (!s && r.step != step)
        s = error_set(err, HEED_EFORMAT, "%s is of step %lld, expected %lld", path,
                      (long long)r.step, (long long)step);
    if (!s) s = check_files(&r, dir, err);
    if (!s) s = directory_config(&config, dir, err);
    if (!s) *p = r;
    return s;
}

enum heed_status checkpoint_shards(const char *out, int *shards, struct heed_error *err)
{
    char dir[FILE_PATH_MAX], path[FILE_PATH_MAX];
    const struct recipe none = {.shards = 1};
    int64_t *steps;
    int n;
    enum heed_status s = checkpoint_list(out, &steps, &n, err);
    if (s) return s;
    *shards = 0;
    for (int i = 0; i < n && !*shards; i++) {
        struct progress r;
        char *text = NULL;
        size_t len;
        bool read = !step_dir(dir, out, steps[i], "", NULL) &&
                    !file_join(path, sizeof path, dir, RECORD, NULL) &&
                    !file_read(path, 1 << 20, &text, &len, NULL) &&
                    !record_parse(&r, &none, text, len, path, NULL);
        if (read) *shards = r.recipe.shards;
        free(text);
    }
    free(steps);
    return HEED_OK;
}

enum heed_status checkpoint_check(const struct checkpoint *c, int64_t step, struct heed_error *err)
{
    char dir[FILE_PATH_MAX];
    bool same = false;
    enum heed_status s = step_dir(dir, c->out, step, "", err);
    if (!s) s = directory_same_config(dir, &c->p->config, err);
    if (!s) s = directory_same_vocabulary(dir, c->tokenizer, &same, err);
    if (!s && !same)
        s = error_set(err, HEED_EARG, "%s has another vocabulary than the one given", dir);
    return s;
}

enum heed_status checkpoint_load(const struct checkpoint *c, int64_t step, struct heed_error *err)
{
    char dir[FILE_PATH_MAX], path[FILE_PATH_MAX];
    const struct slices *slices = c->opt->slices;
    struct flat moments[] = {{.prefix = "m.", .m = c->opt->m}, {.prefix = "v.", .m = c->opt->v}};
    for (int i = 0; i < 2 && slices; i++) {
        moments[i].part = slices->part;
        moments[i].parts = slices->spans;
    }
    enum heed_status s = step_dir(dir, c->out, step, "", err);
    if (!s) s = file_join(path, sizeof path, dir, STATE, err);
    if (!s) s = weights_load(c->p, moments, 2, path, err);
    if (!s) s = directory_weights(path, dir, err);
    struct flat weights = {.prefix = "", .m = c->p->master};
    if (c->opt->master.p) {
        weights = moments[0];
        weights.prefix = "";
        weights.m = c->opt->master;
    }
    if (!s) s = weights_load(c->p, &weights, 1, path, err);
    return s;
}
