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

/* Whether the kernels that are compiled for some widths take these. */
static bool fast_width(const struct attention *a)
{
    int dk = attention_dk(a), dv = attention_dv(a);
    return dk % 8 == 0 && dv % 8 == 0 && dk <= 128 && dv <= 128;
}

static bool aligned_inputs(const struct attention *a)
{
    return aligned(a->q) && aligned(a->k) && aligned(a->v) && aligned(a->o) &&
           aligned(a->relative_k) && aligned(a->relative_v) && aligned(a->additive);
}

static void check(const struct attention *a)
{
    assert(a->heads > 0 && attention_fits(a));
    assert(a->k.type == a->v.type && a->q.type == a->o.type);
    assert(!a->weights.p || a->lse.p);
    assert(!a->relative_k.p || a->relative_k.type == TYPE_F32);
    assert(!a->additive.p || a->additive.type == TYPE_F32);
    (void)a;
}

/* The kernels read kv_heads without asking whether it is 0. */
static struct attention with_kv_heads(const struct attention *a)
{
    struct attention b = *a;
    b.kv_heads = attention_kv_heads(a);
    return b;
}

void attention_forward(const struct attention *given, struct chain chain)
{
    const struct attention whole = with_kv_heads(given), *a = &whole;
    check(a);
    if (!a->seqs.n || !a->seqs.max_q) return;
    bool half = a->q.type == TYPE_BF16, keys_half = a->k.type == TYPE_BF16;
    if (attention_additive_take(a))
        attention_additive_forward(a, chain.stream);
    else if (!fast_width(a) || !aligned_inputs(a) || (half && !keys_half))
        attention_plain_forward(a, chain.stream);
    else if (half && !a->seqs.at && attention_tiles_take(a))
        attention_tiles_forward(a, chain);
    else
        attention_rows_forward(a, chain);
    if (a->weights.p) attention_weights(a, chain.stream);
}

void attention_backward(struct gpu *c, const struct attention *given,
                        const struct attention_grad *g)
{
    const struct attention whole = with_kv_heads(given), *a = &whole;
    check(a);
    assert(!a->seqs.at && a->lse.p && g->dq.type == a->q.type && a->k.type == a->q.type);
    /* sums are added to parameters as to one vector */
    assert(g->drelative_k.ld == g->drelative_k.cols && g->drelative_v.ld == g->drelative_v.cols);
    assert(g->dadditive.ld == g->dadditive.cols);
    if (!a->seqs.n) return;
    if (attention_additive_take(a)) {
        attention_additive_backward(c, a, g);
        return;
    }
    bool fast = a->q.type == TYPE_BF16 && fast_width(a) && aligned_inputs(a) && aligned(g->dq) &&
                aligned(g->dk) && aligned(g->dv) && aligned(g->dout) && attention_tiles_take(a);
    if (!fast || !attention_tiles_backward(c, a, g)) attention_plain_backward(c, a, g);
}
