/*
 * transformer.h - one run of the model over one batch: activations, forward, backward.
 *
 * The weights are shared and constant (parameters.h); a run belongs to one thread. The same run
 * serves training (activations of every layer are kept for backward), evaluation and translation
 * (one layer's worth of activations, reused). Nothing is allocated after open.
 *
 * Call order in training: open; per batch run_loss, which runs forward and backward; free.
 * In translation: open; run_encode, then run_step per output position; free.
 */
#ifndef HEED_MODEL_TRANSFORMER_H
#define HEED_MODEL_TRANSFORMER_H
#include "base/packed.h"
#include "model/parameters.h"

struct attention_acts {
    struct mat qkv;        /* [N,3D]; self only */
    struct mat q;          /* [N,D]; self: a view of qkv */
    struct mat kv;         /* [S,2D]; cross only: k and v of the memory */
    struct mat o;          /* [N,D] */
    struct mat lse;        /* [N,H] */
    struct mat xhat, rstd; /* [N,D], [N,1]; absent when nothing is kept */
    struct mat y;          /* [N,D] */
};

struct ff_acts {
    struct mat h; /* [N,F] */
    struct mat xhat, rstd, y;
};

struct encoder_acts {
    struct attention_acts self;
    struct ff_acts ff;
};

struct decoder_acts {
    struct attention_acts self, cross;
    struct ff_acts ff;
};

/* Buffers that live within one sub-layer, shared by all; N is the larger of S and T. */
struct scratch {
    struct mat r;         /* [N,D] output of a sub-layer before add_norm */
    struct mat logits;    /* [chunk,V] */
    struct mat loss;      /* [T,2] */
    struct mat d[2];      /* [N,D] gradient above and below a sub-layer, in turn */
    struct mat dr, dout;  /* [N,D] */
    struct mat dqkv, dkv; /* [N,3D], [S,2D] */
    struct mat dh;        /* [N,F] */
    struct mat dmem;      /* [S,D] */
};

/* The self-attention cache of translation: row i of a layer holds k and v of one position. There is
 * one row more than run_options.cached, for rows that only fill up a step. */
struct cache {
    struct mat layer[LAYERS_MAX]; /* [rows, 2D] */
};

/* What the ops of a step depend on, besides the numbers in memory; and the ops, on a device that
 * records them. */
struct step_shape {
    int rows, width, candidates, wants, watch, max_memory;
};
struct step_record {
    struct step_shape shape;
    struct graph *graph; /* NULL: it came once only, or could not be recorded */
    bool tried;
};
enum { STEP_RECORDS = 128 };

/* One way through a stack, forward or backward. */
struct pass {
    int rows;                  /* query rows */
    struct seqs self, cross;   /* cross: decoder only */
    const struct cache *cache; /* keys and values of self-attention; NULL: the rows themselves */
    const int32_t *cache_at;   /* [rows] where the new rows go */
};

struct run_options {
    int rows_src, rows_tgt; /* at most so many rows on each side */
    int sentences;          /* at most so many sentences */
    int candidates, wants;  /* translation: at most so many next tokens per row, ... */
    int cached;             /* ... and so many cache rows that a step looks at, in all */
    bool watched;           /* ... whose attention may be watched */
    bool train;             /* keep activations, hold gradients */
};

struct run {
    struct backend *be;
    const struct parameters *p;
    struct run_options o;
    void *block;         /* every activation */
    int32_t *ints;       /* the batch, or the arrays of a step, on the device ... */
    int32_t *staged;     /* ... and on the host, to go there in one piece */
    struct packed batch; /* pointers into ints */
    int32_t *ahead;      /* train: another one on the device, ... */
    struct packed next;  /* ... which comes after this one */
    int32_t *iota;       /* host: 0, 1, 2, ...; [rows_tgt+1] */
    void *loss;          /* host: s.loss of the last batch */
    float *top;          /* on the device: the scores that a step found, behind them the ids ... */
    float *found;        /* ... and on the host, to come in one piece */
    struct mat watched;  /* [T*H, max_length] attention of a step that is watched, ... */
    uint32_t watch_site; /* ... of this site; 0: none */
    struct step_record record[STEP_RECORDS];
    int records;
    bool dropout;
    uint64_t seed; /* of this batch's dropout masks */

    struct mat embed_src, embed_tgt; /* [S,D], [T,D] */
    struct encoder_acts encoder[LAYERS_MAX];
    struct decoder_acts decoder[LAYERS_MAX];
    struct mat memory; /* output of the encoder, [S,D] */
    struct scratch s;

    struct mat grad;  /* [1,n] laid out like the parameters; train only */
    struct weights g; /* its tensors */
};

/* be: that of the parameters, or another on the same device, so that runs of one model can go on
 * side by side. */
enum heed_status run_open(struct run **out, struct backend *be, const struct parameters *p,
                          const struct run_options *o, struct heed_error *err);
void run_free(struct run *r);

/* Summed over the target tokens of a batch. */
struct loss {
    double smoothed, nll;
    int64_t tokens;
};

struct loss_options {
    float label_smoothing;
    bool backward; /* gradients of the summed loss are added to r->grad */
    bool dropout;
    uint64_t seed; /* of the dropout masks; a new one for every batch */
};

/* The whole walk for one batch; *out is added to. */
enum heed_status run_loss(struct run *r, const struct packed *b, const struct loss_options *o,
                          struct loss *out, struct heed_error *err);
/* The same in steps, for training: a batch goes ahead to the device, a walk begins with the one
 * that went ahead, and its loss is taken. Only the last waits: before it other ops may follow, and
 * the next batch go ahead. */
void run_ahead(struct run *r, const struct packed *b);
void run_loss_begin(struct run *r, const struct loss_options *o);
enum heed_status run_loss_take(struct run *r, struct loss *out, struct heed_error *err);

/* Logits [T,V] of a batch in host memory, in the master's type; for tests. */
enum heed_status run_logits(struct run *r, const struct packed *b, void *logits,
                            struct heed_error *err);

/* Translation: the encoder, and the memory's keys and values for every decoder layer. */
enum heed_status run_encode(struct run *r, const struct packed *b, struct heed_error *err);

/* One output position for every hypothesis of some sentences. All arrays are on the host. The
 * hypotheses of sentence i are rows [first[i], first[i+1]). */
struct step {
    int sentences;
    const int32_t *first;               /* [sentences+1] */
    const int32_t *memory, *memory_len; /* [sentences] its rows of the memory */
    int width;                          /* the most rows of a sentence */
    const int32_t *id, *pos;            /* [rows] the token fed in and its position */
    const struct cache *cache;
    const int32_t *cache_at; /* [rows] cache row of this position */
    const int32_t *self;     /* [rows] where the list of its cache rows starts in self_at, ... */
    const int32_t *self_len; /* ... and how many there are by now, this position's included */
    const int32_t *self_at;  /* [self_rows] */
    int self_rows;
    const int32_t *want; /* [rows*wants] next tokens whose scores are wanted as well; -1: none */
    int wants;
    int watch; /* 1 + a decoder layer whose attention to the source goes to run_watched; 0: none */
};
/* The k best next tokens of each row, best first, and behind them those wanted: id, score
 * [rows*(k+wants)] on the host. */
enum heed_status run_step(struct run *r, const struct step *s, int k, int32_t *id, float *score,
                          struct heed_error *err);
/* What the first n rows of the last step, which was watched, gave to each row of their memory in
 * each head: weights [n*H, max_length] on the host. */
enum heed_status run_watched(struct run *r, int n, float *weights, struct heed_error *err);

#endif
