/*
 * attention.cu - chooses the kernel for an attention; see attention.h for what the choice may
 * depend on.
 */
#include "ops/cuda/attention.h"

#include <assert.h>

#include "ops/cuda/attention_parts.h"

/* Every head of every row starts at a multiple of 16 bytes. */
static bool aligned(struct mat m)
{
    return (size_t)m.p % 16 == 0 && m.ld * type_size(m.type) % 16 == 0;
}

static bool fast_width(const struct attention *a)
{
    int width = a->q.cols / a->heads;
    return a->v.cols == a->q.cols && (width == 32 || width == 64 || width == 128);
}

static bool aligned_inputs(const struct attention *a)
{
    return aligned(a->q) && aligned(a->k) && aligned(a->v) && aligned(a->o);
}

static void check(const struct attention *a)
{
    assert(a->heads > 0 && a->q.cols % a->heads == 0 && a->v.cols % a->heads == 0);
    assert(a->k.cols == a->q.cols && a->o.cols == a->v.cols);
    assert(a->q.cols / a->heads <= HEAD_WIDTH_MAX && a->v.cols / a->heads <= HEAD_WIDTH_MAX);
    assert(a->k.type == a->v.type && a->q.type == a->o.type);
    assert(!a->weights.p || a->lse.p);
    (void)a;
}

void attention_forward(const struct attention *a, struct chain chain)
{
    check(a);
    if (!a->seqs.n || !a->seqs.max_q) return;
    bool half = a->q.type == TYPE_BF16, keys_half = a->k.type == TYPE_BF16;
    if (!fast_width(a) || !aligned_inputs(a) || (half && !keys_half))
        attention_plain_forward(a, chain.stream);
    else if (half && !a->seqs.at)
        attention_tiles_forward(a, chain.stream);
    else
        attention_rows_forward(a, chain);
    if (a->weights.p) attention_weights(a, chain.stream);
}

void attention_backward(const struct attention *a, struct mat dq, struct mat dk, struct mat dv,
                        struct mat dout, cudaStream_t stream)
{
    const struct gradients g = {dq, dk, dv, dout};
    check(a);
    assert(!a->seqs.at && a->lse.p && dq.type == a->q.type && a->k.type == a->q.type);
    if (!a->seqs.n) return;
    bool fast = a->q.type == TYPE_BF16 && fast_width(a) && aligned_inputs(a) && aligned(dq) &&
                aligned(dk) && aligned(dv) && aligned(dout);
    if (fast)
        attention_tiles_backward(a, &g, stream);
    else
        attention_plain_backward(a, &g, stream);
}
