/*
 * log.c - log.jsonl; see log.h.
 */
#include "train/log.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"

struct log {
    int fd;
    char path[FILE_PATH_MAX];
};

/* The step that a line begins with; -1: none. sscanf would be slow, because it first calls strlen
 * on the whole text. */
static long long line_step(const char *line)
{
    static const char prefix[] = "{\"step\":";
    const char *number = line + sizeof prefix - 1;
    char *after;
    if (strncmp(line, prefix, sizeof prefix - 1) != 0) return -1;
    long long step = strtoll(number, &after, 10);
    return after > number ? step : -1;
}

/* How many bytes at the front of text are whole lines of steps up to `step`. */
static size_t kept_bytes(const char *text, size_t len, int64_t step)
{
    size_t kept = 0;
    while (kept < len) {
        const char *line = text + kept, *end = memchr(line, '\n', len - kept);
        long long at = line_step(line);
        if (!end || at < 0 || at > step) break;
        kept = (size_t)(end + 1 - text);
    }
    return kept;
}

/* Removes the lines of steps after `step` from the file. */
static enum heed_status cut(const char *path, int64_t step, struct heed_error *err)
{
    char *text;
    size_t len;
    if (!file_exists(path)) return HEED_OK;
    enum heed_status s = file_read(path, (size_t)4 << 30, &text, &len, err);
    if (s) return s;
    size_t kept = kept_bytes(text, len, step);
    if (kept < len) s = file_write(path, &(struct file_part){text, kept}, 1, err);
    free(text);
    return s;
}

enum heed_status log_open(struct log **out, const char *dir, int64_t step, struct heed_error *err)
{
    struct log *l = calloc(1, sizeof *l);
    if (!l) return error_memory(err, sizeof *l, "the log");
    l->fd = -1;
    enum heed_status s = file_join(l->path, sizeof l->path, dir, "log.jsonl", err);
    if (!s) s = cut(l->path, step, err);
    if (!s) l->fd = open(l->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (!s && l->fd < 0) s = error_errno(err, "cannot write %s", l->path);
    if (s) {
        log_free(l);
        return s;
    }
    *out = l;
    return HEED_OK;
}

void log_free(struct log *l)
{
    if (!l) return;
    if (l->fd >= 0) close(l->fd);
    free(l);
}

/* JSON has no NaN and no infinity: they become null. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

/* A list for each layer with a number of each expert: its share, or what it dropped. Four digits
 * are enough for counts of a batch. */
static json_t *experts(const struct heed_event *e, bool dropped)
{
    json_t *layers = json_array();
    for (int l = 0; l < e->layers; l++) {
        json_t *layer = json_array();
        for (int i = l * e->experts; i < (l + 1) * e->experts; i++) {
            double x = dropped ? e->expert[i].dropped : e->expert[i].share;
            json_array_append_new(layer, json_real(round(x * 1e4) / 1e4));
        }
        json_array_append_new(layers, layer);
    }
    return layers;
}

enum { EXPERTS_EVERY = 10 }; /* steps: the numbers of all experts make a long line */

enum heed_status log_event(struct log *l, const struct heed_event *e, struct heed_error *err)
{
    static const char *const kind[] = {"start", "step", "skip", "rollback",
                                       "valid", "save", "done"};
    json_t *j = json_pack("{sI ss sI}", "step", (json_int_t)e->step, "event", kind[e->kind],
                          "epoch", (json_int_t)e->epoch);
    if (e->kind == HEED_EVENT_STEP || e->kind == HEED_EVENT_SKIP) {
        json_object_set_new(j, "loss", number(e->loss));
        json_object_set_new(j, "lr", number(e->lr));
        json_object_set_new(j, "norm", number(e->norm));
        json_object_set_new(j, "source_tokens", json_integer(e->source_tokens));
        json_object_set_new(j, "target_tokens", json_integer(e->target_tokens));
        json_object_set_new(j, "flops", number(e->flops));
        json_object_set_new(j, "tokens_s", number(e->tokens_s));
        if (e->expert && e->step % EXPERTS_EVERY == 0) {
            json_object_set_new(j, "expert_share", experts(e, false));
            json_object_set_new(j, "expert_dropped", experts(e, true));
        }
    }
    if (e->kind == HEED_EVENT_VALID) {
        json_object_set_new(j, "nll", number(e->nll));
        json_object_set_new(j, "perplexity", number(e->perplexity));
        if (e->bleu >= 0) json_object_set_new(j, "bleu", number(e->bleu));
        if (e->chrf >= 0) json_object_set_new(j, "chrf", number(e->chrf));
        json_object_set_new(j, "best", json_boolean(e->best));
    }
    json_object_set_new(j, "seconds", number(e->seconds));
    if (e->text) json_object_set_new(j, "text", json_string(e->text));
    char *line = j ? json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    enum heed_status s = HEED_OK;
    if (!line)
        s = error_memory(err, 512, l->path);
    else if (!file_append(l->fd, line, strlen(line)) || !file_append(l->fd, "\n", 1))
        s = error_errno(err, "cannot write %s", l->path);
    free(line);
    json_decref(j);
    return s;
}
