/*
 * log.c - log.jsonl; see log.h.
 */
#include "train/log.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "train/jsonl.h"

struct log {
    struct jsonl file;
};

enum heed_status log_open(struct log **out, const char *dir, int64_t step, struct heed_error *err)
{
    struct log *l = calloc(1, sizeof *l);
    if (!l) return error_memory(err, sizeof *l, "the log");
    enum heed_status s = jsonl_open(&l->file, dir, "log.jsonl", step, err);
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
    jsonl_close(&l->file);
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

/* The name of a file need not be UTF-8, as a JSON string has to be. */
static json_t *name_of(const char *file)
{
    json_t *name = json_string(file);
    return name ? name : json_null();
}

/* What was read of each file of the training text. */
static json_t *reads(const struct heed_event *e)
{
    json_t *list = json_array();
    for (int i = 0; i < e->reads; i++) {
        const struct heed_read *r = &e->read[i];
        json_array_append_new(list, json_pack("{so sI sf sf}", "file", name_of(r->file), "pairs",
                                              (json_int_t)r->pairs, "weight", r->weight, "times",
                                              r->times));
    }
    return list;
}

enum { EXPERTS_EVERY = 10 }; /* steps: the numbers of all experts make a long line */

enum heed_status log_event(struct log *l, const struct heed_event *e, struct heed_error *err)
{
    static const char *const kind[] = {"start", "step", "skip", "rollback",
                                       "valid", "save", "done"};
    json_t *j = json_pack("{sI ss sI}", "step", (json_int_t)e->step, "event", kind[e->kind],
                          "epoch", (json_int_t)e->epoch);
    if (e->kind == HEED_EVENT_START) json_object_set_new(j, "steps", json_integer(e->steps));
    if (e->kind == HEED_EVENT_STEP || e->kind == HEED_EVENT_SKIP) {
        json_object_set_new(j, "loss", number(e->loss));
        json_object_set_new(j, "lr", number(e->lr));
        json_object_set_new(j, "norm", number(e->norm));
        json_object_set_new(j, "source_tokens", json_integer(e->source_tokens));
        json_object_set_new(j, "target_tokens", json_integer(e->target_tokens));
        json_object_set_new(j, "flops", number(e->flops));
        json_object_set_new(j, "tokens_s", number(e->tokens_s));
        json_object_set_new(j, "text_waited", number(e->text_waited));
        if (e->waited > 0) json_object_set_new(j, "waited", number(e->waited));
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
    if (e->read) json_object_set_new(j, "read", reads(e));
    json_object_set_new(j, "seconds", number(e->seconds));
    if (e->text) json_object_set_new(j, "text", json_string(e->text));
    return jsonl_append(&l->file, j, 9, err);
}
