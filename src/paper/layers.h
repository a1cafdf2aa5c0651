/*
 * layers.h - one layer of each kind that the paper's table 1 compares, forward and backward, made
 * of the ops of a device: self-attention, recurrent, convolutional, restricted self-attention.
 *
 * A layer maps LAYER_SENTENCES sentences of n positions, vectors of d numbers, to as many vectors.
 * Biases, dropout, residuals and norms are left out of all of them.
 *
 * Call order: layer_open, which fills x and dy with random numbers; layer_forward, layer_backward;
 * layer_close.
 */
#ifndef HEED_PAPER_LAYERS_H
#define HEED_PAPER_LAYERS_H
#include "ops/ops.h"

/* As many sentences as views of rows are aligned to, so that the rows of one position of all
 * sentences are such a view. */
enum { LAYER_SENTENCES = ROW_PAD, LAYER_BLOCKS = 24, KERNEL = 3 };

enum layer_kind {
    LAYER_ATTENTION,   /* multi-head self-attention with its four projections, heads of up to 64 */
    LAYER_RECURRENT,   /* an LSTM, one position after the other; see layers.c for its gates */
    LAYER_CONVOLUTION, /* of KERNEL neighbouring positions */
    LAYER_RESTRICTED,  /* self-attention to positions at most `window` away */
    LAYER_KINDS
};

struct layer {
    enum layer_kind kind;
    int n, d, window;
    struct backend *be;
    enum type type;                   /* of activations and weights */
    struct mat x, y, dx, dy;          /* [n * LAYER_SENTENCES, d], in the order of layer_row */
    struct mat w[KERNEL], dw[KERNEL]; /* weights; of the recurrent layer w[1] is w[0] transposed */
    struct attention a;               /* attention alone */
    struct attention_grad g;          /* ... */
    struct mat qkv, dqkv;             /* ... */
    struct mat input, dinput;         /* recurrent: [x, h before]; convolution: x with zeros
                                       * before and after the sentence */
    struct mat gates, dgates;         /* recurrent: see layers.c */
    struct mat part, part2;           /* recurrent, convolution: products before they are added */
    void *block[LAYER_BLOCKS];
    int blocks;
    size_t kept; /* bytes that forward writes and backward reads, and x */
};

enum heed_status layer_open(struct layer *l, struct backend *be, enum layer_kind kind, int n, int d,
                            int window, enum type type, uint64_t seed, struct heed_error *err);
void layer_close(struct layer *l);

/* The row of a position of a sentence. */
int layer_row(const struct layer *l, int sentence, int position);

void layer_forward(struct layer *l);
/* Writes dx and adds to dw. */
void layer_backward(struct layer *l);
/* The last `steps` of the n dependent steps that backward of a recurrent layer takes; dx of the
 * positions before is 0, and dw is not computed. */
void layer_backward_steps(struct layer *l, int steps);

/* The scores, softmax and sums of attention without its projections, which is what the n^2 d of
 * table 1 counts. */
void layer_attend(struct layer *l);
void layer_attend_backward(struct layer *l);

#endif
