/*
 * run.h - one run of the model over one batch: forward, backward, and the steps of translation.
 *
 * The weights are shared and constant (parameters.h); a run belongs to one thread. The same run
 * serves training (activations of every layer are kept for backward), evaluation and translation
 * (one layer's activations, reused). Nothing is allocated after run_open.
 *
 * Call order in training: run_open; per batch run_loss, which runs forward and backward; run_free.
 * In translation: run_open; run_encode for some sentences, then run_step for an output position of
 * those that are open, in any order; run_free.
 */
#ifndef HEED_MODEL_RUN_H
#define HEED_MODEL_RUN_H
#include "model/activations.h"
#include "model/parameters.h"
#include "model/staging.h"

struct run_options {
    int rows_src, rows_tgt; /* rows on each side, at most */
    int rows_memory;       /* translation: rows of the memory whose keys and values are kept, of all
                            * sentences; 0: rows_src */
    int sentences;         /* at most */
    int candidates, wants; /* translation: next tokens per row that a step finds, at most: the best,
                            * and those that are asked for by their id */
    int cached;            /* ... rows of the KV cache that a step looks at in all, at most */
    bool train;            /* keep activations, hold gradients */
    bool watch;            /* room for the attention weights of run_attention */
};

/* What a decoding step finds: the scores, followed by the ids. */
struct step_found {
    float *device, *host; /* the same numbers, before and after a download */
};

/* What the ops of a decoding step depend on besides the numbers in memory: steps of one shape can
 * be replayed from one CUDA graph. */
struct step_shape {
    int rows, width, candidates, wants, watch, max_memory;
};
struct step_graph {
    struct step_shape shape;
    struct graph *graph; /* NULL: this shape came once only, or could not be captured */
    bool tried;
};
enum { STEP_GRAPHS = 128 };
struct step_graphs {
    struct step_graph v[STEP_GRAPHS];
    int n;
};

struct run {
    struct backend *be;
    const struct parameters *p;
    struct run_options o;
    void *block; /* all device memory of this run */
    struct activations a;

    struct staging staging;
    int32_t *ints;       /* device: the arrays of the batch or step */
    struct packed batch; /* pointers into ints */
    int32_t *ahead;      /* train: the arrays of the batch that comes after it */
    struct packed next;  /* pointers into ahead */

    void *loss;    /* host: a.head.loss of the last batch */
    void *tallies; /* host: a.tallies of the last batch */
    float balance; /* coefficient of the last batch, see expert_options */
    struct step_found found;
    struct step_graphs graphs;
    struct mat stepped;  /* [T*H, max_length] attention weights of a step that is watched;
                          * not for training */
    struct mat *watched; /* [sites_count] see struct pass */

    struct mat grad;  /* [1,n] laid out like the parameters; train only */
    struct weights g; /* its tensors */
};

/* be: that of the parameters, or another on the same device, so that runs of one model can go on
 * side by side. */
enum heed_status run_open(struct run **out, struct backend *be, const struct parameters *p,
                          const struct run_options *o, struct heed_error *err);
void run_free(struct run *r);
/* From now on gradients are added to the array at p, like r->grad; returns the one before, which
 * the caller gets. Before run_free the first array must be back. */
void *run_swap_gradient(struct run *r, void *p);

/* What a batch asked of an expert: choices (see struct routing), and how many of them were taken.
 */
struct expert_load {
    double asked, taken;
};

/* Summed over the target tokens of a batch. */
struct loss {
    double smoothed, nll;
    double balance; /* what unbalanced experts add to the smoothed loss; not part of it */
    int64_t tokens;
    struct expert_load *load; /* [layers*E] encoder layers first; NULL: not wanted */
};

struct loss_options {
    float label_smoothing;
    bool backward; /* gradients of the summed loss are added to r->grad */
    bool dropout;
    uint64_t seed; /* of the dropout masks; a new one for every batch */
    struct expert_options experts;
    const struct gradient_watch *watch; /* of backward; NULL: nobody is told */
};

/* Forward, and backward if asked for, over one batch; *out is added to. */
enum heed_status run_loss(struct run *r, const struct packed *b, const struct loss_options *o,
                          struct loss *out, struct heed_error *err);
/* The same in three calls, for training: run_ahead uploads a batch beside the ops that are still
 * running, run_loss_begin queues forward and backward over the batch that was uploaded ahead, and
 * run_loss_take waits for its loss. Before the last, other ops may be queued and the next batch
 * uploaded. */
void run_ahead(struct run *r, const struct packed *b);
void run_loss_begin(struct run *r, const struct loss_options *o);
enum heed_status run_loss_take(struct run *r, struct loss *out, struct heed_error *err);

/* -log p of each target token of the last batch whose loss was taken. */
void run_nll(const struct run *r, double *out);

/* Logits [T,V] of a batch in host memory, in the master's type; for tests. */
enum heed_status run_logits(struct run *r, const struct packed *b, void *logits,
                            struct heed_error *err);

/* Attention weights of a batch in host memory. Those of head h in row i of layer l are row
 * (l*rows + i)*H + h, with 0 after the last key of the sentence. */
struct run_weights {
    float *encoder; /* [layers*S*H, max_src] self-attention of the encoder */
    float *decoder; /* [layers*T*H, max_tgt] self-attention of the decoder */
    float *cross;   /* [layers*T*H, max_src] */
};
/* One pass over a batch whose targets are given fills out. The run was opened with `watch`. */
enum heed_status run_attention(struct run *r, const struct packed *b, const struct run_weights *out,
                               struct heed_error *err);

/* Translation: the encoder, and the memory's keys and values for every decoder layer, which stay
 * where they are put until others are put there. */
enum heed_status run_encode(struct run *r, const struct packed *b, struct memory_place at,
                            struct heed_error *err);

/* One output position for every hypothesis of some sentences. All arrays are on the host. The
 * hypotheses of sentence i are rows [first[i], first[i+1]). */
struct step {
    int sentences;
    const int32_t *first;               /* [sentences+1] */
    const int32_t *memory, *memory_len; /* [sentences] the sentence's rows of the memory, ... */
    const int32_t *state;               /* ... and its state, see struct memory_place */
    int width;                          /* the most rows of a sentence */
    const int32_t *id, *pos;            /* [rows] the token fed in and its position */
    const struct cache *cache;          /* with one row more than run_options.cached, for padding */
    const int32_t *cache_at;            /* [rows] cache row of this position */
    const int32_t *cache_before;        /* [rows] ... of the position before; -1: there is none */
    const int32_t *self; /* [rows] where the list of a row's cache rows starts in self_at, ... */
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
/* The attention weights of the first n rows of the last step, which was watched, to each row of
 * their memory in each head: weights [n*H, max_length] on the host. */
enum heed_status run_watched(struct run *r, int n, float *weights, struct heed_error *err);

/* The functions below are shared by run.c and step.c alone. */

/* Rows that a step of n rows is padded to: CUDA graphs are captured per shape, so row counts are
 * rounded up to a few sizes. What padding rows find is ignored. */
int step_rows(const struct ops *op, int n);
void step_graphs_release(struct step_graphs *g, struct backend *be);

#endif
