/*
 * embeddings.c - the geometry of a model's embeddings: nearest pieces by cosine, and words on the
 * plane of their two principal components.
 *
 * The vectors are those that the model reads, in any type of weights and on any device: the op
 * embed looks all of them up once.
 */
#include "study/embeddings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/minmax.h"
#include "decode/session.h"
#include "ops/engine.h"
#include "tokens/spm.h"
#include "tokens/tokenizer.h"

static void scale_to_one(float *x, int d)
{
    double sum = 0;
    for (int i = 0; i < d; i++) sum += (double)x[i] * x[i];
    for (int i = 0; i < d && sum > 0; i++) x[i] = (float)(x[i] / sqrt(sum));
}

/* ---- all vectors ---- */

/* Takes the mean of all vectors from each. What they have in common says nothing of a word, but
 * makes the cosine of any two large (Mu and Viswanath 2018). */
static void centre(struct heed_embeddings *e)
{
    for (int c = 0; c < e->d; c++) {
        double mean = 0;
        for (int i = 0; i < e->v; i++) mean += (double)e->row[(size_t)i * e->d + c] / e->v;
        for (int i = 0; i < e->v; i++) e->row[(size_t)i * e->d + c] -= (float)mean;
    }
}

/* Looks up all pieces on the device, a part at a time. */
static enum heed_status look_up(struct heed_embeddings *e, struct backend *be, struct mat table,
                                struct heed_error *err)
{
    enum { PART = 1024 };
    int32_t id[PART];
    void *memory = NULL;
    size_t ids = PART * sizeof *id, bytes = ids + (size_t)PART * e->d * sizeof(float);
    enum heed_status status = be->op->alloc(be, &memory, bytes, USED_WHOLE, err);
    if (status) return status;
    for (int first = 0; first < e->v && !status; first += PART) {
        int n = int_min(PART, e->v - first);
        struct mat y = mat_make((char *)memory + ids, n, e->d, TYPE_F32);
        for (int i = 0; i < n; i++) id[i] = first + i;
        be->op->upload(be, memory, id, n * sizeof *id);
        be->op->embed(be, y, memory, memory, table, (struct mat){0}, (struct drop){0});
        be->op->download(be, e->row + (size_t)first * e->d, y.p, (size_t)n * e->d * sizeof *e->row);
        status = be->op->sync(be, err);
    }
    be->op->free(be, memory);
    return status;
}

static enum heed_status find_words(struct heed_embeddings *e, struct heed_error *err)
{
    size_t len;
    const char *data = tokenizer_bytes(e->m->tokenizer, &len);
    struct spm_piece *piece = NULL;
    enum heed_status status = spm_pieces(data, len, &piece, e->v, err);
    for (int i = 0; i < e->v && !status; i++)
        e->is_word[i] =
            piece[i].kind == SPM_NORMAL && !spm_is_language(piece[i].text, piece[i].len);
    free(piece);
    return status;
}

static enum heed_status fill(struct heed_embeddings *e, enum heed_side side, struct heed_error *err)
{
    const struct embeddings *w = &e->m->p->w.embed;
    struct backend *be = NULL;
    size_t bytes = (size_t)e->v * e->d * sizeof *e->row;
    e->row = malloc(bytes);
    e->is_word = calloc((size_t)e->v, sizeof *e->is_word);
    if (!e->row || !e->is_word) return error_memory(err, bytes, "embeddings");
    enum heed_status status = find_words(e, err);
    if (!status) status = engine_fork(e->m->engine, &be, err);
    if (!status)
        status = look_up(e, be, side == HEED_SIDE_SOURCE ? w->source.table : w->target.table, err);
    if (be) be->op->close(be);
    if (status) return status;
    centre(e);
    for (int i = 0; i < e->v; i++) scale_to_one(e->row + (size_t)i * e->d, e->d);
    return HEED_OK;
}

struct heed_embeddings *heed_embeddings_open(const struct heed_model *m, enum heed_side side,
                                             struct heed_error *err)
{
    if (!m) {
        error_null(err, "model");
        return NULL;
    }
    struct heed_embeddings *e = calloc(1, sizeof *e);
    if (!e) {
        error_memory(err, sizeof *e, "embeddings");
        return NULL;
    }
    e->m = m;
    e->v = m->p->config.vocab_size;
    e->d = m->p->config.d_model;
    if (fill(e, side, err)) {
        heed_embeddings_free(e);
        return NULL;
    }
    return e;
}

void heed_embeddings_free(struct heed_embeddings *e)
{
    if (!e) return;
    free(e->row);
    free(e->is_word);
    free(e);
}

/* ---- words ---- */

/* SentencePiece puts a space before a word, and writes it as a piece of its own where no piece
 * begins with it, as before Chinese. Such a space is no piece of the word. */
static void drop_space(const struct heed_tokenizer *t, struct heed_ids *ids, size_t from)
{
    const char *first = ids->n > from + 1 ? heed_tokenizer_piece(t, ids->v[from]) : NULL;
    if (!first || strcmp(first, SPM_SPACE) != 0) return;
    ids->n--;
    memmove(ids->v + from, ids->v + from + 1, (ids->n - from) * sizeof *ids->v);
}

enum heed_status heed_embeddings_pieces(const struct heed_embeddings *e, const char *word,
                                        struct heed_ids *out, struct heed_error *err)
{
    if (!e || !word || !out) return error_null(err, !e ? "embeddings" : !word ? "word" : "out");
    const struct heed_tokenizer *t = e->m->tokenizer;
    size_t from = out->n;
    enum heed_status status = tokenizer_encode_source(t, word, strlen(word), true, out, err);
    if (status) return status;
    drop_space(t, out, from);
    bool blank = out->n == from || strcmp(heed_tokenizer_piece(t, out->v[from]), SPM_SPACE) == 0;
    if (blank) {
        out->n = from;
        return error_set(err, HEED_EARG, "a word is '%s', expected letters", word);
    }
    if (tokenizer_spells(t, out->v + from, out->n - from)) return HEED_OK;
    out->n = from;
    return error_set(err, HEED_EARG,
                     "the vocabulary cannot spell '%s': it has no piece for some of its letters",
                     word);
}

enum heed_status embeddings_add(const struct heed_embeddings *e, const char *word, double sign,
                                double *sum, struct heed_ids *ids, struct heed_error *err)
{
    size_t from = ids->n;
    enum heed_status status = heed_embeddings_pieces(e, word, ids, err);
    if (status) return status;
    float *mean = calloc((size_t)e->d, sizeof *mean);
    if (!mean) return error_memory(err, (size_t)e->d * sizeof *mean, "a vector");
    for (size_t k = from; k < ids->n; k++)
        for (int i = 0; i < e->d; i++) mean[i] += e->row[(size_t)ids->v[k] * e->d + i];
    scale_to_one(mean, e->d);
    for (int i = 0; i < e->d; i++) sum[i] += sign * (double)mean[i];
    free(mean);
    return HEED_OK;
}

/* ---- neighbours ---- */

static const char *without_space(const char *piece)
{
    size_t n = strlen(SPM_SPACE);
    return strncmp(piece, SPM_SPACE, n) == 0 ? piece + n : piece;
}

/* Whether a piece is one of the words, or a piece of one, with or without a space before it. */
static bool is_asked(const struct heed_embeddings *e, int32_t id, const struct heed_ids *ids,
                     const char *const *word, int n)
{
    const struct heed_tokenizer *t = e->m->tokenizer;
    const char *text = without_space(heed_tokenizer_piece(t, id));
    for (size_t i = 0; i < ids->n; i++)
        if (strcmp(text, without_space(heed_tokenizer_piece(t, ids->v[i]))) == 0) return true;
    for (int i = 0; i < n; i++)
        if (strcmp(text, word[i]) == 0) return true;
    return false;
}

/* Puts a neighbour into the list of the best so far, of at most count. Among equals the lower id is
 * first. */
static void keep_best(struct heed_neighbour *best, int *n, int count, struct heed_neighbour x)
{
    int at = *n;
    while (at > 0 && best[at - 1].cosine < x.cosine) at--;
    if (at == count) return;
    if (*n < count) ++*n;
    memmove(best + at + 1, best + at, (size_t)(*n - at - 1) * sizeof *best);
    best[at] = x;
}

static void search(const struct heed_embeddings *e, const double *to, const struct heed_ids *ids,
                   const char *const *plus, int plus_n, const char *const *minus, int minus_n,
                   int count, struct heed_neighbour *out, int *found)
{
    double length = 0;
    int n = 0;
    for (int i = 0; i < e->d; i++) length += to[i] * to[i];
    length = sqrt(length);
    for (int32_t id = 0; id < e->v; id++) {
        const float *row = e->row + (size_t)id * e->d;
        double dot = 0;
        if (!e->is_word[id]) continue;
        for (int i = 0; i < e->d; i++) dot += to[i] * (double)row[i];
        float cosine = length > 0 ? (float)(dot / length) : 0;
        if (n == count && cosine <= out[n - 1].cosine) continue;
        if (is_asked(e, id, ids, plus, plus_n) || is_asked(e, id, ids, minus, minus_n)) continue;
        const char *piece = heed_tokenizer_piece(e->m->tokenizer, id);
        keep_best(out, &n, count, (struct heed_neighbour){id, piece, cosine});
    }
    *found = n;
}

enum heed_status heed_neighbours(const struct heed_embeddings *e, const char *const *plus,
                                 int plus_n, const char *const *minus, int minus_n, int count,
                                 struct heed_neighbour *out, int *found, struct heed_error *err)
{
    if (!e || !out || !found) return error_null(err, !e ? "embeddings" : !out ? "out" : "found");
    if (plus_n + minus_n < 1 || count < 1)
        return error_set(err, HEED_EARG, "there are %d words and %d neighbours, expected 1 or more",
                         plus_n + minus_n, count);
    enum heed_status status = error_strings(err, "plus", plus, plus_n);
    if (!status) status = error_strings(err, "minus", minus, minus_n);
    if (status) return status;
    struct heed_ids ids = {0};
    double *to = calloc((size_t)e->d, sizeof *to);
    if (!to) return error_memory(err, (size_t)e->d * sizeof *to, "a vector");
    for (int i = 0; i < plus_n && !status; i++)
        status = embeddings_add(e, plus[i], 1, to, &ids, err);
    for (int i = 0; i < minus_n && !status; i++)
        status = embeddings_add(e, minus[i], -1, to, &ids, err);
    if (!status) search(e, to, &ids, plus, plus_n, minus, minus_n, count, out, found);
    free(to);
    free(ids.v);
    return status;
}
