/*
 * pass.h - one pass through the model, forward or backward: what every sub-layer is given besides
 * its weights and activations, and the two calls that most of them are made of.
 */
#ifndef HEED_MODEL_PASS_H
#define HEED_MODEL_PASS_H
#include "model/layout.h"

/* Buffers whose contents live within one sub-layer, so that all sub-layers share them. Each is laid
 * out by the module that fills it. N is the larger of S and T. */
struct scratch {
    struct mat r;      /* [N,D] output of a sub-layer before the residual is added */
    struct mat dr;     /* [N,D] its gradient */
    struct mat d[2];   /* [N,D] gradients above and below a sub-layer, in turn */
    struct mat dout;   /* [N,H*dv] gradient of the output of attention, before its projection */
    struct mat dqkv;   /* [N,H*dk+KV*(dk+dv)] gradients of queries, keys and values */
    struct mat dkv;    /* [S,KV*(dk+dv)] gradients of keys and values of the memory */
    struct mat dh;     /* [N,F] gradient inside the feed-forward */
    struct mat dz;     /* [N,2F] ... and before its gate, where it has one */
    struct mat taken;  /* [taken,D] input of the experts, see struct routing */
    struct mat dtaken; /* [taken,D] gradient of their output, then of their input */
};

/* How a mixture of experts is trained. {0}: no choice is dropped, and experts may be chosen
 * unequally often, as in validation and translation. */
struct expert_options {
    float balance;  /* coefficient of the loss of unbalanced experts */
    float capacity; /* an expert takes at most this many times the choices that each would get if
                     * all were chosen equally often; 0: no limit */
    int least;      /* ... but never fewer than this */
};

/* Told during backward that the gradients of a span of the parameters (parameters_spans) are final:
 * nothing is added to them any more, once the ops that were called before are done. */
struct gradient_watch {
    void (*final)(void *user, int span);
    void *user;
};

struct pass {
    struct backend *be;
    const struct heed_config *config;
    const struct scratch *scratch;
    struct mat positions; /* the table of position_open */
    bool dropout;
    uint64_t seed; /* of this batch's dropout masks */
    struct expert_options experts;
    const struct mat *watched; /* [sites_count] the weights that the attention of each site writes
                                * out, for alignments and pictures; absent: none. NULL: no site */
    const struct gradient_watch *watch; /* NULL: nobody is told */
};

static inline void pass_final(const struct pass *p, int span)
{
    if (p->watch) p->watch->final(p->watch->user, span);
}

/* Where a dropout is applied, which is part of the key of its mask. A sub-layer has two places: one
 * inside it, which is its site, and the next, on its output. The noise of a router is drawn at a
 * third. Encoder layers come first, then
 * decoder layers. */
enum site {
    SITE_EMBED_SRC,
    SITE_EMBED_TGT,
    SITE_FIRST_LAYER = 8,
    SITES_PER_LAYER = 8,
    SITE_SELF = 0,
    SITE_CROSS = 2,
    SITE_FEED_FORWARD = 4
};

static inline uint32_t encoder_site(int layer, enum site sublayer)
{
    return SITE_FIRST_LAYER + (uint32_t)layer * SITES_PER_LAYER + sublayer;
}

static inline uint32_t decoder_site(const struct heed_config *c, int layer, enum site sublayer)
{
    return encoder_site(c->encoder_layers + layer, sublayer);
}

/* The number of the last site, and one. */
static inline uint32_t sites_count(const struct heed_config *c)
{
    return encoder_site(c->encoder_layers + c->decoder_layers, SITE_SELF);
}

static inline struct drop drop_at(const struct pass *p, float rate, uint32_t site)
{
    return (struct drop){p->dropout ? rate : 0, p->seed, site};
}

/* Whether backward must compute the activations of a layer again. Those of the last layer of a
 * stack are still there. */
static inline bool pass_recomputes(const struct pass *p, int layer, int last)
{
    return layer < last && p->config->recompute == HEED_RECOMPUTE_LAYER;
}

/* The first rows of a buffer. */
static inline struct mat mat_top(struct mat m, int rows)
{
    return mat_rows(m, 0, rows);
}

/* Where the gradient below a sub-layer goes: the one of the two buffers that dy is not in. */
static inline struct mat gradient_below(const struct pass *p, struct mat dy)
{
    const struct mat *d = p->scratch->d;
    return mat_top(dy.p == d[0].p ? d[1] : d[0], dy.rows);
}

/* y = x wT */
static inline void linear(const struct pass *p, struct mat y, struct mat x, struct mat w)
{
    p->be->op->linear(p->be, y, x, w, (struct mat){0}, (struct activation){0});
}

/* dw += dyT x; dx = beta * dx + dy w */
static inline void linear_backward(const struct pass *p, struct mat dx, float beta, struct mat dw,
                                   struct mat dy, struct mat x, struct mat w)
{
    p->be->op->linear_bwd(p->be, dx, beta, (struct mat){0}, dw, dy, x, w, (struct activation){0});
}

#endif
