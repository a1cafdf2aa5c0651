/*
 * pieces.c - from texts to what a search takes, and back; see pieces.h.
 */
#include "decode/pieces.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/sentences.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

enum {
    LONG_TEXT = 100,   /* tokens; a longer one of several sentences is not translated at once */
    SHORT_SENTENCE = 4 /* tokens; a shorter one goes with the next, for what looks like the end of
                        * a sentence may be an abbreviation or a list */
};

void pieces_release(struct pieces *p)
{
    for (int i = 0; p->out && i < p->n * p->nbest; i++) translation_release(&p->out[i]);
    for (int i = 0; p->prefix && i < p->n; i++) free(p->prefix[i].v);
    free(p->ids.v);
    free(p->part);
    free(p->text);
    free(p->src);
    free(p->prefix);
    free(p->out);
    free(p->flags);
}

/* ---- from texts to pieces ---- */

static enum heed_status part_add(struct pieces *p, size_t at, const char *gap, size_t gap_len,
                                 struct heed_error *err)
{
    if (p->parts == p->parts_cap) {
        int cap = p->parts_cap ? p->parts_cap * 2 : 64;
        struct part *v =
            p->parts_cap > INT_MAX / 4 ? NULL : realloc(p->part, (size_t)cap * sizeof *v);
        if (!v) return error_memory(err, (size_t)cap * sizeof *v, "sentences");
        p->part = v;
        p->parts_cap = cap;
    }
    p->part[p->parts++] = (struct part){.at = at, .gap = gap, .gap_len = gap_len};
    return HEED_OK;
}

/* The sentences of a long text, those that are short together with the next. */
static enum heed_status fill_sentences(struct pieces *p, const struct heed_tokenizer *t,
                                       const char *text, const struct sentences *s,
                                       struct heed_error *err)
{
    enum heed_status status = HEED_OK;
    for (size_t i = 0, next; i < s->n && !status; i = next) {
        size_t at = p->ids.n, start = s->v[i].start, before = i ? s->v[i - 1].end : start;
        for (next = i; next < s->n && !status && p->ids.n - at < SHORT_SENTENCE; next++) {
            p->ids.n = at;
            status = heed_encode(t, text + start, s->v[next].end - start, &p->ids, err);
        }
        if (!status) status = part_add(p, at, text + before, start - before, err);
    }
    return status;
}

static enum heed_status fill_text(struct pieces *p, const struct heed_tokenizer *t, int longest,
                                  const char *text, struct heed_error *err)
{
    size_t at = p->ids.n, len = strlen(text);
    enum heed_status status = heed_encode(t, text, len, &p->ids, err);
    if (status || p->ids.n == at) return status;
    size_t most = longest < LONG_TEXT ? (size_t)longest : LONG_TEXT;
    struct sentences s = {0};
    if (p->ids.n - at > most) status = sentences_split(&s, text, len, err);
    if (!status && s.n > 1) {
        p->ids.n = at;
        status = fill_sentences(p, t, text, &s, err);
    } else if (!status) {
        status = part_add(p, at, text, 0, err);
    }
    free(s.v);
    return status;
}

/* Pieces of at most `longest` tokens, now that the ids stay where they are. */
static enum heed_status cut(struct pieces *p, int longest, struct heed_error *err)
{
    size_t n = 0;
    for (int i = 0; i < p->parts; i++)
        n += (p->part[i + 1].at - p->part[i].at + longest - 1) / longest;
    p->src = n > INT_MAX / BEAM_MAX ? NULL : calloc(n + 1, sizeof *p->src);
    p->prefix = p->src ? calloc(n + 1, sizeof *p->prefix) : NULL;
    p->flags = p->prefix ? calloc(n + 1, sizeof *p->flags) : NULL;
    p->out = p->flags ? calloc(n * p->nbest + 1, sizeof *p->out) : NULL;
    if (!p->out) return error_memory(err, n * p->nbest * sizeof *p->out, "sentences");
    for (int i = 0; i < p->parts; i++) {
        size_t at = p->part[i].at, end = p->part[i + 1].at;
        p->part[i].first = p->n;
        for (size_t len; at < end; at += len) {
            len = end - at < (size_t)longest ? end - at : (size_t)longest;
            p->src[p->n++] = (struct heed_ids){p->ids.v + at, len, 0};
        }
    }
    p->part[p->parts].first = p->n;
    return HEED_OK;
}

enum heed_status pieces_fill(struct pieces *p, const struct heed_tokenizer *t, int longest,
                             int nbest, const char *const *text, int texts, struct heed_error *err)
{
    p->nbest = nbest;
    p->text = malloc(((size_t)texts + 1) * sizeof *p->text);
    if (!p->text) return error_memory(err, texts * sizeof *p->text, "sentences");
    enum heed_status status = HEED_OK;
    for (int i = 0; i < texts && !status; i++) {
        p->text[i] = p->parts;
        status = fill_text(p, t, longest, text[i], err);
    }
    p->text[texts] = p->parts;
    if (!status) status = part_add(p, p->ids.n, NULL, 0, err); /* the end of the last */
    if (status) return status;
    p->parts--;
    return cut(p, longest, err);
}

static enum heed_status append_id(struct heed_ids *ids, int32_t id, struct heed_error *err)
{
    int32_t *v = realloc(ids->v, (ids->n + 1) * sizeof *v);
    if (!v) return error_memory(err, (ids->n + 1) * sizeof *v, "a translation");
    v[ids->n++] = id;
    ids->v = v;
    ids->cap = ids->n;
    return HEED_OK;
}

enum heed_status pieces_prefix(struct pieces *p, const struct heed_tokenizer *t, int longest,
                               const char *const *prefix, bool whole, int texts,
                               struct heed_error *err)
{
    for (int i = 0; i < texts; i++) {
        int first = p->part[p->text[i]].first, n = p->part[p->text[i + 1]].first - first;
        if (n == 0 || !prefix[i]) continue;
        if (whole && n > 1)
            return error_set(err, HEED_EARG, "sentence %d is too long to be scored at once", i + 1);
        struct heed_ids *ids = &p->prefix[first];
        enum heed_status status = heed_encode(t, prefix[i], strlen(prefix[i]), ids, err);
        if (!status && whole) status = append_id(ids, tokenizer_eos(t), err);
        if (status) return status;
        if (ids->n > (size_t)longest)
            return error_set(err, HEED_EARG,
                             "what is given for sentence %d has %zu tokens, expected at most %d",
                             i + 1, ids->n, longest);
    }
    return HEED_OK;
}

/* ---- from pieces to texts ---- */

struct string {
    char *v;
    size_t n, cap;
};

static enum heed_status append(struct string *s, const char *text, size_t len,
                               struct heed_error *err)
{
    if (s->cap - s->n <= len) {
        size_t cap = s->cap * 2 + len + 1;
        char *v = realloc(s->v, cap);
        if (!v) return error_memory(err, cap, "a translation");
        s->v = v;
        s->cap = cap;
    }
    memcpy(s->v + s->n, text, len);
    s->n += len;
    s->v[s->n] = '\0';
    return HEED_OK;
}

/* Chinese, Japanese and full-width characters, between which there are no spaces. */
static bool ends_wide(const struct string *s)
{
    size_t at = s->n;
    while (at && ((unsigned char)s->v[at - 1] & 0xc0) == 0x80) at--;
    if (at == 0 || utf8_char(s->v + at - 1, s->n - at + 1) != 3) return false;
    const unsigned char *c = (const unsigned char *)s->v + at - 1;
    unsigned x = (c[0] & 15u) << 12 | (c[1] & 63u) << 6 | (c[2] & 63u);
    return (x >= 0x2e80 && x <= 0x9fff) || (x >= 0xff00 && x <= 0xff65);
}

/* White space between sentences stays what it was, but whether there is a space at all is for the
 * language of the translation to say. */
static enum heed_status append_gap(struct string *s, const struct part *p, struct heed_error *err)
{
    bool none = p->gap_len == 0, space = p->gap_len == 1 && *p->gap == ' ';
    if (s->n == 0) return HEED_OK;
    if (none || space) return ends_wide(s) ? HEED_OK : append(s, " ", 1, err);
    return append(s, p->gap, p->gap_len, err);
}

/* Adds the translation of a part, which the ids of its pieces make together. */
static enum heed_status append_part(struct string *s, const struct pieces *p,
                                    const struct heed_tokenizer *t, int part, int rank,
                                    struct heed_result *r, struct heed_error *err)
{
    int first = p->part[part].first, last = p->part[part + 1].first;
    size_t n = 0, len;
    for (int i = first; i < last; i++) n += p->out[(size_t)i * p->nbest + rank].ids.n;
    int32_t *ids = malloc((n + 1) * sizeof *ids), *end = ids;
    if (!ids) return error_memory(err, n * sizeof *ids, "a translation");
    for (int i = first; i < last; i++) {
        const struct translation *x = &p->out[(size_t)i * p->nbest + rank];
        memcpy(end, x->ids.v, x->ids.n * sizeof *ids);
        end += x->ids.n;
        r->tokens += (int)x->ids.n + x->ended;
        r->logp += (float)x->logp;
        r->score += (float)x->score;
        if (rank == 0) r->flags |= p->flags[i];
    }
    char *text = NULL;
    enum heed_status status = heed_decode(t, ids, n, &text, &len, err);
    if (!status) status = append_gap(s, &p->part[part], err);
    if (!status) status = append(s, text, len, err);
    free(text);
    free(ids);
    return status;
}

enum heed_status pieces_join(const struct pieces *p, const struct heed_tokenizer *t, int text,
                             int rank, struct heed_result *r, struct heed_error *err)
{
    int first = p->text[text], last = p->text[text + 1];
    if (first == last && rank) return HEED_OK;
    for (int i = p->part[first].first; i < p->part[last].first; i++)
        if (!p->out[(size_t)i * p->nbest + rank].ids.v) return HEED_OK;
    struct string s = {0};
    struct heed_result sum = {0};
    enum heed_status status = append(&s, "", 0, err);
    for (int i = first; i < last && !status; i++)
        status = append_part(&s, p, t, i, rank, &sum, err);
    if (status) {
        free(s.v);
        return status;
    }
    sum.text = s.v;
    sum.len = s.n;
    *r = sum;
    return HEED_OK;
}
