/*
 * answer.c - a copy of an answer; see answer.h. The layout runs twice, to measure the block and to
 * fill it.
 */
#include "serve/answer.h"

#include <stdlib.h>
#include <string.h>

struct block {
    char *base; /* NULL: only measure */
    size_t n;
};

/* Where `bytes` bytes of `from` are copied to; NULL where they are only measured, or from is. */
static void *keep(struct block *b, const void *from, size_t bytes)
{
    enum { ALIGN = _Alignof(max_align_t) };
    size_t at = b->n;
    if (!from) return NULL;
    b->n += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return b->base && bytes ? memcpy(b->base + at, from, bytes) : NULL;
}

static struct heed_alignment *keep_alignment(struct block *b, const struct heed_alignment *from)
{
    if (!from) return NULL;
    struct heed_alignment *a = keep(b, from, sizeof *from);
    struct heed_span *source = keep(b, from->source, (size_t)from->sources * sizeof *source);
    struct heed_span *target = keep(b, from->target, (size_t)from->targets * sizeof *target);
    int *link = keep(b, from->link, (size_t)from->targets * sizeof *link);
    if (!a) return NULL;
    a->source = source;
    a->target = target;
    a->link = link;
    return a;
}

static void keep_result(struct block *b, struct heed_result *to, const struct heed_result *from)
{
    struct heed_result r = *from;
    r.text = keep(b, from->text, from->len + 1);
    r.id = keep(b, from->id, (size_t)from->tokens * sizeof *from->id);
    r.token_logp = keep(b, from->token_logp, (size_t)from->tokens * sizeof *from->token_logp);
    r.copied = r.left_out = NULL;
    r.copied_n = r.left_out_n = 0;
    r.alignment = keep_alignment(b, from->alignment);
    if (to) *to = r;
}

static struct heed_answer *layout(struct block *b, const struct heed_answer *from)
{
    struct heed_answer *a = keep(b, from, sizeof *from);
    struct heed_result *result = keep(b, from->result, (size_t)from->n * sizeof *result);
    char *why = keep(b, from->why, from->why ? strlen(from->why) + 1 : 0);
    struct heed_beam_node *beam = keep(b, from->beam, (size_t)from->beams * sizeof *beam);
    for (int i = 0; i < from->n; i++) keep_result(b, result ? &result[i] : NULL, &from->result[i]);
    if (!a) return NULL;
    a->result = result;
    a->why = why;
    a->beam = beam;
    return a;
}

struct heed_answer *answer_copy(const struct heed_answer *from)
{
    struct block b = {0};
    layout(&b, from);
    b = (struct block){.base = malloc(b.n)};
    return b.base ? layout(&b, from) : NULL;
}
