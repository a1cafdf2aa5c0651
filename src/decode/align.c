/*
 * align.c - which words of a translation come from which of its source; see align.h.
 *
 * The weights of the tokens of a word are added up on both sides, and a word of the translation is
 * linked to the source word that has the most.
 */
#include "decode/align.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "decode/join.h"
#include "tokens/sentences.h"
#include "tokens/tokenizer.h"

/* The tokens of a part, on the side of the source or of the translation. */
struct tokens {
    size_t *end; /* where each ends, in bytes from the start of the part */
    int *word;   /* the word of the text that each belongs to; -1: none */
    size_t n;
};

static void tokens_release(struct tokens *x)
{
    free(x->end);
    free(x->word);
}

static enum heed_status tokens_open(struct tokens *x, size_t n, struct heed_error *err)
{
    *x = (struct tokens){malloc((n + 1) * sizeof *x->end), malloc((n + 1) * sizeof *x->word), n};
    return x->end && x->word ? HEED_OK : error_memory(err, n * sizeof *x->end, "an alignment");
}

/* Finds the words of the tokens. A token belongs to the word that its last byte is in, since its
 * first bytes may be the space before that word. offset: where the part begins in the text; words
 * before it have no tokens here. */
static void tokens_place(struct tokens *x, size_t offset, const struct spans *words)
{
    size_t w = (size_t)spans_ended(words->v, (int)words->n, offset);
    for (size_t i = 0; i < x->n; i++) {
        size_t end = offset + x->end[i];
        while (w < words->n && words->v[w].at + words->v[w].len < end) w++;
        x->word[i] = w < words->n && words->v[w].at < end ? (int)w : -1;
    }
}

static enum heed_status tokens_fill(struct tokens *src, struct tokens *tgt, const struct pieces *p,
                                    const struct heed_tokenizer *t, int part, int rank,
                                    struct heed_error *err)
{
    const struct part *x = &p->part[part];
    struct target target = {0};
    enum heed_status status = tokens_open(src, x[1].at - x->at, err);
    if (!status)
        status = tokenizer_source_ends(t, p->read + x->where.at, x->where.len, !p->tag.n && !part,
                                       src->end, src->n, err);
    if (!status) status = target_make(&target, p, t, part, rank, err);
    if (!status) status = tokens_open(tgt, target.ids.n, err);
    if (!status && tgt->n) memcpy(tgt->end, target.end, tgt->n * sizeof *tgt->end);
    target_release(&target);
    return status;
}

/* The words of n tokens are [*first, *first + the result). */
static int words_of(const int *word, size_t n, int *first)
{
    int last = -1;
    *first = 0;
    for (size_t i = 0; i < n; i++) {
        if (word[i] < 0) continue;
        if (last < 0) *first = word[i];
        last = word[i];
    }
    return last < 0 ? 0 : last - *first + 1;
}

/* Links the words of one piece. src [src_n] and tgt [tgt_n] are the words of its tokens, and
 * weight [tgt_n, stride] is their attention. */
static enum heed_status link_piece(int *link, const int *src, size_t src_n, const int *tgt,
                                   size_t tgt_n, const float *weight, size_t stride,
                                   struct heed_error *err)
{
    int s, t, sources = words_of(src, src_n, &s), targets = words_of(tgt, tgt_n, &t);
    if (!sources || !targets) return HEED_OK;
    float *sum = calloc((size_t)sources * targets, sizeof *sum);
    if (!sum) return error_memory(err, (size_t)sources * targets * sizeof *sum, "an alignment");
    for (size_t j = 0; j < tgt_n; j++)
        for (size_t i = 0; i < src_n && tgt[j] >= 0; i++)
            if (src[i] >= 0) sum[(tgt[j] - t) * sources + src[i] - s] += weight[j * stride + i];
    for (int j = 0; j < targets; j++) {
        int best = -1;
        for (int i = 0; i < sources; i++)
            if (sum[j * sources + i] > (best < 0 ? 0 : sum[j * sources + best])) best = i;
        if (best >= 0) link[t + j] = s + best;
    }
    free(sum);
    return HEED_OK;
}

static enum heed_status link_part(int *link, const struct pieces *p, const struct heed_tokenizer *t,
                                  int part, int rank, float *const *attention,
                                  const struct spans words[2], struct heed_error *err)
{
    const struct part *x = &p->part[part];
    struct tokens src = {0}, tgt = {0};
    enum heed_status status = tokens_fill(&src, &tgt, p, t, part, rank, err);
    if (!status) {
        tokens_place(&src, x->where.at, &words[0]);
        tokens_place(&tgt, x->target[rank], &words[1]);
    }
    size_t s = 0, u = 0; /* tokens of the pieces before */
    for (int i = x->first; i < x[1].first && !status; i++) {
        size_t stride = p->sentence[i].src.n, tgt_n = p->sentence[i].out[rank].ids.n;
        size_t tag = p->tag.n, src_n = stride - tag;
        status = link_piece(link, src.word + s, src_n, tgt.word + u, tgt_n, attention[i] + tag,
                            stride, err);
        s += src_n, u += tgt_n;
    }
    tokens_release(&src);
    tokens_release(&tgt);
    return status;
}

struct heed_alignment *alignment_make(const struct spans words[2], int **link,
                                      struct heed_error *err)
{
    size_t src = words[0].n * sizeof *words[0].v, tgt = words[1].n * sizeof *words[1].v;
    size_t bytes = sizeof(struct heed_alignment) + src + tgt + words[1].n * sizeof **link;
    struct heed_alignment *a = malloc(bytes);
    if (!a) {
        error_memory(err, bytes, "an alignment");
        return NULL;
    }
    struct heed_span *v = (struct heed_span *)(a + 1);
    if (src) memcpy(v, words[0].v, src);
    if (tgt) memcpy(v + words[0].n, words[1].v, tgt);
    *link = (int *)(v + words[0].n + words[1].n);
    for (size_t i = 0; i < words[1].n; i++) (*link)[i] = -1;
    *a = (struct heed_alignment){.source = v,
                                 .target = v + words[0].n,
                                 .sources = (int)words[0].n,
                                 .targets = (int)words[1].n,
                                 .link = *link};
    return a;
}

enum heed_status align_text(struct heed_alignment **out, const struct pieces *p,
                            const struct heed_tokenizer *t, const struct heed_result *r, int rank,
                            float *const *attention, struct heed_error *err)
{
    const char *source = p->read;
    struct spans words[2] = {0};
    struct heed_alignment *a = NULL;
    int *link = NULL;
    if (!utf8_valid(source, strlen(source))) return HEED_OK;
    enum heed_status status = words_split(&words[0], source, strlen(source), err);
    if (!status) status = words_split(&words[1], r->text, r->len, err);
    if (!status && !(a = alignment_make(words, &link, err))) status = HEED_ENOMEM;
    for (int i = 0; i < p->parts && !status; i++)
        status = link_part(link, p, t, i, rank, attention, words, err);
    free(words[0].v);
    free(words[1].v);
    if (status)
        free(a);
    else
        *out = a;
    return status;
}
