/*
 * pieces.c - from the texts of a call to the sentences of a search; see pieces.h.
 */
#include "decode/pieces.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "decode/request.h"
#include "tokens/sentences.h"
#include "tokens/tokenizer.h"

enum {
    LONG_TEXT = 100,   /* tokens; a longer text is translated sentence by sentence */
    SHORT_SENTENCE = 4 /* tokens; a shorter sentence is joined with the next, for what looks like
                        * the end of a sentence may be an abbreviation or a list */
};

static void text_release(struct text *x)
{
    for (int i = 0; i < x->phrases; i++) free(x->phrase[i].v);
    free(x->phrase);
    free(x->tag.v);
    free(x->refused);
    spelling_release(&x->spelling);
    spelling_release(&x->given);
}

void pieces_release(struct pieces *p)
{
    for (size_t i = 0; i < p->outs; i++) translation_release(&p->out[i]);
    for (int i = 0; i < p->n; i++) free(p->sentence[i].must.prefix.v);
    for (int i = 0; i < p->texts; i++) text_release(&p->text[i]);
    free(p->text);
    free(p->ids.v);
    free(p->part);
    free(p->sentence);
    free(p->flags);
    free(p->tagged);
    free(p->out);
    free(p->target);
}

void pieces_of(const struct pieces *p, int text, int *first, int *last)
{
    *first = p->part[p->text[text].first].first;
    *last = p->part[p->text[text + 1].first].first;
}

enum heed_status pieces_refuse(struct pieces *p, int text, const struct heed_error *why,
                               struct heed_error *err)
{
    struct text *x = &p->text[text];
    int first = 0, last = 0;
    if (p->sentence) pieces_of(p, text, &first, &last);
    for (int i = first; i < last; i++) p->sentence[i].src.n = p->sentence[i].must.prefix.n = 0;
    if (!x->refused) x->refused = malloc(sizeof *why);
    if (!x->refused) return error_memory(err, sizeof *why, "a text that is refused");
    *x->refused = *why;
    return HEED_OK;
}

/* ---- parts ---- */

/* Adds a part whose ids begin at `at`. */
static enum heed_status part_add(struct pieces *p, size_t at, struct heed_span where, size_t gap,
                                 struct heed_error *err)
{
    if (p->parts == INT_MAX)
        return error_set(err, HEED_EARG, "the texts have more than %d sentences", INT_MAX);
    enum heed_status status = array_reserve(&p->part, &p->parts_cap, (size_t)p->parts + 1,
                                            sizeof *p->part, "sentences", err);
    if (status) return status;
    p->part[p->parts++] = (struct part){.at = at, .where = where, .gap = gap};
    return HEED_OK;
}

/* A part for each sentence of a long text; short sentences are joined with the next. */
static enum heed_status parts_of_sentences(struct pieces *p, const struct heed_tokenizer *t,
                                           const struct text *x, const struct spans *s,
                                           struct heed_error *err)
{
    enum heed_status status = HEED_OK;
    size_t before = s->v[0].at; /* the end of the last part */
    for (size_t i = 0; i < s->n && !status;) {
        size_t at = p->ids.n, start = s->v[i].at, end = start;
        for (; i < s->n && !status && p->ids.n - at < SHORT_SENTENCE; i++) {
            p->ids.n = at;
            end = s->v[i].at + s->v[i].len;
            status = tokenizer_encode_source(t, x->read + start, end - start,
                                             !x->tag.n && start == s->v[0].at, &p->ids, err);
        }
        if (!status)
            status = part_add(p, at, (struct heed_span){start, end - start}, start - before, err);
        before = end;
    }
    return status;
}

/* Appends the ids of what is read of a text, without the white space around it; *all: the bytes
 * that are left. */
static enum heed_status encode_text(struct pieces *p, const struct heed_tokenizer *t,
                                    const struct text *x, struct heed_span *all,
                                    struct heed_error *err)
{
    *all = text_trimmed(x->read, strlen(x->read));
    return all->len
               ? tokenizer_encode_source(t, x->read + all->at, all->len, !x->tag.n, &p->ids, err)
               : HEED_OK;
}

/* The ids and parts of a text. longest: tokens of a piece. */
static enum heed_status parts_make(struct pieces *p, const struct heed_tokenizer *t, int longest,
                                   struct text *x, struct heed_error *err)
{
    size_t at = p->ids.n;
    struct heed_span all;
    enum heed_status status = encode_text(p, t, x, &all, err);
    bool some = p->ids.n > at; /* without an id there may be no array */
    if (!status && some && !tokenizer_spells(t, p->ids.v + at, p->ids.n - at)) {
        p->ids.n = at;
        status = spelling_make(&x->spelling, t, x->read, !x->tag.n, err);
        if (!status) {
            x->read = x->spelling.read;
            status = encode_text(p, t, x, &all, err);
        }
    }
    bool whole = x->request->given; /* scored as one sentence, even without tokens */
    if (status || (p->ids.n == at && !whole)) return status;
    size_t most = longest < LONG_TEXT ? (size_t)longest : LONG_TEXT;
    struct spans s = {0};
    if (p->ids.n - at > most && !whole)
        status = sentences_split(&s, x->read, all.at + all.len, err);
    if (!status && s.n > 1) {
        p->ids.n = at;
        status = parts_of_sentences(p, t, x, &s, err);
    } else if (!status) {
        status = part_add(p, at, all, 0, err);
    }
    free(s.v);
    return status;
}

/* Checks the request of a text. HEED_EARG where it makes no sense. */
static enum heed_status text_open(struct text *x, const struct heed_request *r,
                                  const struct heed_tokenizer *t, int longest,
                                  struct heed_error *err)
{
    x->request = r;
    x->o = r->options ? *r->options : heed_translate_defaults();
    x->read = r->text;
    x->nbest = 1;
    enum heed_status status = request_check(r, &x->o, longest, err);
    if (!status && x->o.to) status = tokenizer_tag(t, x->o.to, &x->tag, err);
    if (!status && (int)x->tag.n >= longest - 1)
        status = error_set(err, HEED_EARG, "the model takes %d tokens, expected more than a tag's",
                           longest - 1);
    if (!status) x->nbest = request_beam(r, &x->o).nbest;
    return status;
}

/* ---- pieces ---- */

/* Tokens of each piece but the last of a part of n tokens. */
static size_t piece_length(size_t n, size_t longest)
{
    return n <= longest ? n : longest < LONG_TEXT ? longest : LONG_TEXT;
}

static size_t piece_count(size_t n, size_t longest)
{
    size_t most = piece_length(n, longest);
    return n ? (n + most - 1) / most : 1;
}

/* Counts the pieces and allocates what they need. */
static enum heed_status pieces_open(struct pieces *p, size_t longest, struct heed_error *err)
{
    size_t n = 0, outs = 0, targets = 0, ids = 0;
    for (int i = 0; i < p->texts; i++) {
        const struct text *x = &p->text[i];
        for (int k = x->first; k < x[1].first; k++) {
            size_t len = p->part[k + 1].at - p->part[k].at;
            size_t count = piece_count(len, longest - x->tag.n);
            n += count;
            outs += count * x->nbest;
            targets += x->nbest;
            ids += len + count * x->tag.n;
        }
    }
    p->sentence = n >= INT_MAX ? NULL : calloc(n + 1, sizeof *p->sentence);
    p->flags = p->sentence ? calloc(n + 1, sizeof *p->flags) : NULL;
    p->tagged = p->flags ? malloc((ids + 1) * sizeof *p->tagged) : NULL;
    p->target = p->tagged ? calloc(targets + 1, sizeof *p->target) : NULL;
    p->out = p->target ? calloc(outs + 1, sizeof *p->out) : NULL;
    if (!p->out) return error_memory(err, outs * sizeof *p->out, "sentences");
    p->outs = outs;
    return HEED_OK;
}

/* Cuts the parts of all texts into pieces. longest: tokens of a piece with its tag. */
static enum heed_status pieces_cut(struct pieces *p, size_t longest, struct heed_error *err)
{
    enum heed_status status = pieces_open(p, longest, err);
    if (status) return status;
    int32_t *to = p->tagged;
    struct translation *out = p->out;
    size_t *target = p->target;
    for (int i = 0; i < p->texts; i++) {
        const struct text *x = &p->text[i];
        struct sentence s = {.beam = request_beam(x->request, &x->o),
                             .longest = x->request->given ? 0 : x->o.max_length};
        for (int k = x->first; k < x[1].first; k++, target += x->nbest) {
            struct part *part = &p->part[k];
            size_t at = part->at, end = part[1].at;
            size_t most = piece_length(end - at, longest - x->tag.n);
            size_t count = piece_count(end - at, longest - x->tag.n);
            part->first = p->n;
            part->target = target;
            for (size_t c = 0, len; c < count; c++, at += len, out += x->nbest) {
                len = end - at < most ? end - at : most;
                s.src = (struct heed_ids){to, x->tag.n + len, 0};
                s.out = out;
                p->sentence[p->n++] = s;
                if (x->tag.n) memcpy(to, x->tag.v, x->tag.n * sizeof *to);
                if (len) memcpy(to + x->tag.n, p->ids.v + at, len * sizeof *to);
                to += s.src.n;
            }
        }
    }
    p->part[p->parts].first = p->n;
    return HEED_OK;
}

/* What is wrong with one request alone (HEED_EARG) is not an error of the call. */
static enum heed_status refuse_wrong(struct pieces *p, int text, enum heed_status status,
                                     const struct heed_error *why, struct heed_error *err)
{
    if (status == HEED_EARG) return pieces_refuse(p, text, why, err);
    if (status && err) *err = *why;
    return status;
}

enum heed_status pieces_fill(struct pieces *p, const struct heed_tokenizer *t, int longest,
                             const struct heed_request *request, int n, struct heed_error *err)
{
    p->text = calloc((size_t)n + 1, sizeof *p->text);
    if (!p->text) return error_memory(err, n * sizeof *p->text, "texts");
    p->texts = n;
    enum heed_status status = HEED_OK;
    struct heed_error why;
    for (int i = 0; i < n && !status; i++) {
        struct text *x = &p->text[i];
        x->first = p->parts;
        status = refuse_wrong(p, i, text_open(x, &request[i], t, longest, &why), &why, err);
        if (!status && !x->refused) status = parts_make(p, t, longest - 1 - (int)x->tag.n, x, err);
    }
    p->text[n].first = p->parts;
    /* one part behind the last, where that ends */
    if (!status) status = part_add(p, p->ids.n, (struct heed_span){0}, 0, err);
    if (status) return status;
    p->parts--;
    status = pieces_cut(p, (size_t)longest - 1, err);
    for (int i = 0; i < n && !status; i++)
        if (!p->text[i].refused)
            status = refuse_wrong(p, i, constraints_make(p, t, i, longest, &why), &why, err);
    return status;
}
