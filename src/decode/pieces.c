/*
 * pieces.c - from the text of a request to the sentences of a search; see pieces.h.
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

void pieces_release(struct pieces *p)
{
    for (int i = 0; i < p->n * p->nbest; i++) translation_release(&p->out[i]);
    for (int i = 0; i < p->n; i++) free(p->sentence[i].must.prefix.v);
    for (int i = 0; i < p->phrases; i++) free(p->phrase[i].v);
    free(p->phrase);
    free(p->tag.v);
    free(p->refused);
    spelling_release(&p->spelling);
    spelling_release(&p->given);
    free(p->ids.v);
    free(p->part);
    free(p->sentence);
    free(p->flags);
    free(p->tagged);
    free(p->out);
    free(p->target);
}

enum heed_status pieces_refuse(struct pieces *p, const struct heed_error *why,
                               struct heed_error *err)
{
    for (int i = 0; i < p->n; i++) p->sentence[i].src.n = p->sentence[i].must.prefix.n = 0;
    if (!p->refused) p->refused = malloc(sizeof *why);
    if (!p->refused) return error_memory(err, sizeof *why, "a text that is refused");
    *p->refused = *why;
    return HEED_OK;
}

/* ---- parts ---- */

/* Adds a part whose ids begin at `at`. */
static enum heed_status part_add(struct pieces *p, size_t at, struct heed_span where, size_t gap,
                                 struct heed_error *err)
{
    if (p->parts == INT_MAX)
        return error_set(err, HEED_EARG, "the text has more than %d sentences", INT_MAX);
    enum heed_status status = array_reserve(&p->part, &p->parts_cap, (size_t)p->parts + 1,
                                            sizeof *p->part, "sentences", err);
    if (status) return status;
    p->part[p->parts++] = (struct part){.at = at, .where = where, .gap = gap};
    return HEED_OK;
}

/* A part for each sentence of a long text; short sentences are joined with the next. */
static enum heed_status parts_of_sentences(struct pieces *p, const struct heed_tokenizer *t,
                                           const struct spans *s, struct heed_error *err)
{
    enum heed_status status = HEED_OK;
    size_t before = s->v[0].at; /* the end of the last part */
    for (size_t i = 0; i < s->n && !status;) {
        size_t at = p->ids.n, start = s->v[i].at, end = start;
        for (; i < s->n && !status && p->ids.n - at < SHORT_SENTENCE; i++) {
            p->ids.n = at;
            end = s->v[i].at + s->v[i].len;
            status = tokenizer_encode_source(t, p->read + start, end - start,
                                             !p->tag.n && start == s->v[0].at, &p->ids, err);
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
                                    struct heed_span *all, struct heed_error *err)
{
    *all = text_trimmed(p->read, strlen(p->read));
    return all->len
               ? tokenizer_encode_source(t, p->read + all->at, all->len, !p->tag.n, &p->ids, err)
               : HEED_OK;
}

/* The ids and parts of a text. longest: tokens of a piece. */
static enum heed_status parts_make(struct pieces *p, const struct heed_tokenizer *t, int longest,
                                   struct heed_error *err)
{
    struct heed_span all;
    enum heed_status status = encode_text(p, t, &all, err);
    bool some = p->ids.n; /* without an id there may be no array */
    if (!status && some && !tokenizer_spells(t, p->ids.v, p->ids.n)) {
        p->ids.n = 0;
        status = spelling_make(&p->spelling, t, p->read, !p->tag.n, err);
        if (!status) {
            p->read = p->spelling.read;
            status = encode_text(p, t, &all, err);
        }
    }
    bool whole = p->request->given; /* scored as one sentence, even without tokens */
    if (status || (!p->ids.n && !whole)) return status;
    size_t most = longest < LONG_TEXT ? (size_t)longest : LONG_TEXT;
    struct spans s = {0};
    if (p->ids.n > most && !whole) status = sentences_split(&s, p->read, all.at + all.len, err);
    if (!status && s.n > 1) {
        p->ids.n = 0;
        status = parts_of_sentences(p, t, &s, err);
    } else if (!status) {
        status = part_add(p, 0, all, 0, err);
    }
    free(s.v);
    return status;
}

/* Checks the request. HEED_EARG where it makes no sense. */
static enum heed_status request_open(struct pieces *p, const struct heed_request *r,
                                     const struct heed_tokenizer *t, int longest,
                                     struct heed_error *err)
{
    p->request = r;
    p->o = r->options ? *r->options : heed_translate_defaults();
    p->read = r->text;
    p->nbest = 1;
    enum heed_status status = request_check(r, &p->o, longest, err);
    if (!status && p->o.to) status = tokenizer_tag(t, p->o.to, &p->tag, err);
    if (!status && (int)p->tag.n >= longest - 1)
        status = error_set(err, HEED_EARG, "the model takes %d tokens, expected more than a tag's",
                           longest - 1);
    if (!status) p->nbest = request_beam(r, &p->o).nbest;
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

/* Counts the pieces and allocates what they need. longest: tokens of a piece without its tag. */
static enum heed_status pieces_open(struct pieces *p, size_t longest, struct heed_error *err)
{
    size_t n = 0, outs, targets = (size_t)p->parts * p->nbest;
    for (int k = 0; k < p->parts; k++) n += piece_count(p->part[k + 1].at - p->part[k].at, longest);
    outs = n * p->nbest;
    p->sentence = n >= INT_MAX ? NULL : calloc(n + 1, sizeof *p->sentence);
    p->flags = p->sentence ? calloc(n + 1, sizeof *p->flags) : NULL;
    p->tagged = p->flags ? malloc((p->ids.n + n * p->tag.n + 1) * sizeof *p->tagged) : NULL;
    p->target = p->tagged ? calloc(targets + 1, sizeof *p->target) : NULL;
    p->out = p->target ? calloc(outs + 1, sizeof *p->out) : NULL;
    return p->out ? HEED_OK : error_memory(err, outs * sizeof *p->out, "sentences");
}

/* Cuts the parts into pieces. longest: as for pieces_open */
static enum heed_status pieces_cut(struct pieces *p, size_t longest, struct heed_error *err)
{
    enum heed_status status = pieces_open(p, longest, err);
    if (status) return status;
    int32_t *to = p->tagged;
    struct sentence s = {.beam = request_beam(p->request, &p->o),
                         .longest = p->request->given ? 0 : p->o.max_length};
    for (int k = 0; k < p->parts; k++) {
        struct part *part = &p->part[k];
        size_t at = part->at, end = part[1].at, most = piece_length(end - at, longest);
        part->first = p->n;
        part->target = p->target + (size_t)k * p->nbest;
        for (size_t c = piece_count(end - at, longest), len; c--; at += len) {
            len = end - at < most ? end - at : most;
            s.src = (struct heed_ids){to, p->tag.n + len, 0};
            s.out = p->out + (size_t)p->n * p->nbest;
            p->sentence[p->n++] = s;
            if (p->tag.n) memcpy(to, p->tag.v, p->tag.n * sizeof *to);
            if (len) memcpy(to + p->tag.n, p->ids.v + at, len * sizeof *to);
            to += s.src.n;
        }
    }
    p->part[p->parts].first = p->n;
    /* The traces of several searches are not part of an answer. */
    for (int i = 0; i < p->n && p->n > 1; i++) p->sentence[i].beam.trace = false;
    return HEED_OK;
}

/* What is wrong with a request alone (HEED_EARG) is not an error of the call. */
static enum heed_status refuse_wrong(struct pieces *p, enum heed_status status,
                                     const struct heed_error *why, struct heed_error *err)
{
    if (status == HEED_EARG) return pieces_refuse(p, why, err);
    if (status && err) *err = *why;
    return status;
}

enum heed_status pieces_fill(struct pieces *p, const struct heed_tokenizer *t, int longest,
                             const struct heed_request *request, struct heed_error *err)
{
    struct heed_error why;
    enum heed_status status = request_open(p, request, t, longest, &why);
    if (status) return refuse_wrong(p, status, &why, err);
    int most = longest - 1 - (int)p->tag.n; /* tokens of a piece without its tag */
    status = parts_make(p, t, most, err);
    /* one part behind the last, where that ends */
    if (!status) status = part_add(p, p->ids.n, (struct heed_span){0}, 0, err);
    if (status) return status;
    p->parts--;
    status = pieces_cut(p, (size_t)most, err);
    return status ? status : refuse_wrong(p, constraints_make(p, t, longest, &why), &why, err);
}
