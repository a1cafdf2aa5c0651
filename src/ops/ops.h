/*
 * ops.h - THE CONTRACT: what a device must do to run the model.
 *
 * The model is written once over the table below; a backend is a filled table. The ops are cut
 * where a good kernel starts and ends.
 *
 * Rules every backend keeps:
 * - Compute ops return nothing, never allocate where the caller can see it, never wait. A device
 *   error sticks and comes out of sync.
 * - Parameter gradients (de, dw, db, drb, dg) always add to what is there. Activation gradients are
 *   beta*old + new where a beta is given and plainly written otherwise.
 * - Dropout masks are never stored: they are recomputed from (seed, site, row, column), see drop.h,
 *   or seen in what a ReLU and they left.
 * - Activation matrices are allocated with their row count rounded up to ROW_PAD, and whatever
 *   lies between the last row and the next multiple of ROW_PAD is scratch that an op may
 *   overwrite. So products run on few distinct shapes. A view of part of the rows must start at a
 *   multiple of ROW_PAD.
 * - Results do not depend on the number of threads, bit for bit.
 *
 * Shape letters: S, T rows of source and target; D model width; F inner width; H heads;
 * V vocabulary; N rows in general. The gradient of x is dx.
 */
#ifndef HEED_OPS_H
#define HEED_OPS_H
#include "heed.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { ROW_PAD = 16 };
enum { HEAD_WIDTH_MAX = 1024 }; /* the widest head that attend takes */

enum type {
    TYPE_F32,
    TYPE_BF16,
    TYPE_F64, /* only in ref, for gradient checks */
    TYPE_I8,  /* only on the way from files: numbers in units of their row's scale, see quant.h */
    /* Weights of linear and embed in the backend's own layout, for translation: see pack. They have
     * no elements to point at; matrices whose rows are a multiple of PACK_ROWS and that lie one
     * after another are one matrix. */
    TYPE_PACKED_F32,
    TYPE_PACKED_BF16,
    TYPE_PACKED_I8
};
enum { PACK_ROWS = 16 };

static inline bool type_packed(enum type t)
{
    return t >= TYPE_PACKED_F32;
}

static inline size_t type_size(enum type t)
{
    return t == TYPE_F64 ? 8 : t == TYPE_F32 ? 4 : t == TYPE_BF16 ? 2 : 1;
}

/* A row-major matrix in device memory; ld is the distance between rows in elements. A vector is a
 * matrix of one row. {0} stands for "absent". */
struct mat {
    void *p;
    int rows, cols, ld;
    enum type type;
};

static inline struct mat mat_make(void *p, int rows, int cols, enum type type)
{
    return (struct mat){p, rows, cols, cols, type};
}

static inline void *mat_at(struct mat m, int row, int col)
{
    return (char *)m.p + ((size_t)row * m.ld + col) * type_size(m.type);
}

/* rows [row, row+n) */
static inline struct mat mat_rows(struct mat m, int row, int n)
{
    return (struct mat){m.p ? mat_at(m, row, 0) : NULL, n, m.cols, m.ld, m.type};
}

/* columns [col, col+n) */
static inline struct mat mat_cols(struct mat m, int col, int n)
{
    return (struct mat){m.p ? mat_at(m, 0, col) : NULL, m.rows, n, m.ld, m.type};
}

/* Which queries look at which keys. Sentence b asks with rows [q[b], q[b+1]) and looks at the
 * klen[b] rows from k[b]. Causal: the last query sees all klen[b] keys, the one before it one
 * less, and so on; so training, cached decoding and everything between are one case. With a table,
 * key j is row at[k[b] + j]: hypotheses of a search share the rows of what they have in common.
 * (Backward takes no table.) */
struct seqs {
    int n;
    const int32_t *q;        /* [n+1] */
    const int32_t *k, *klen; /* [n] */
    int max_q, max_k;        /* the longest of each */
    bool causal;
    const int32_t *at; /* NULL: keys lie one after another */
};

struct drop {
    float p; /* probability of zero; 0: no dropout */
    uint64_t seed;
    uint32_t site; /* which dropout of the model */
};

/* The identity, then the kinds of enum heed_activation in its order. */
enum activation_kind { ACT_NONE, ACT_RELU, ACT_GELU, ACT_KINDS };

/* Whether backward needs the input z of the activation. ReLU shows what it did in its output: what
 * is above 0 there was above 0 before and was not dropped. */
static inline bool activation_needs_z(enum activation_kind kind)
{
    return kind != ACT_NONE && kind != ACT_RELU;
}

/* What linear does to the product z = x wT + b before it stores y: y = drop(f(z)), where f is the
 * function that kind names. {0}: y = z. */
struct activation {
    enum activation_kind kind;
    struct mat z; /* where linear stores z, rounded to y's type, for backward; a matrix like y.
                   * Absent: not stored; then there is no backward, or the kind does not need z */
    struct drop drop;
};

#define NORM_EPSILON 1e-6 /* added to the variance in add_norm */

/* softmax(q kT / sqrt(d_k)) v, head by head (paper 3.2). The width of a head is q.cols / heads. */
struct attention {
    struct mat q, k, v; /* [Nq, H*dk], [Nk, H*dk], [Nk, H*dv]; may be column views of one matrix; in
                         * forward k and v may be narrower than q */
    struct mat o;       /* [Nq, H*dv] out */
    struct mat lse;     /* [Nq, H] out: log of the sum of exp of the scaled scores, for backward */
    struct mat weights; /* [Nq*H, max_k] F32 out, or absent, as it is but for pictures: what query i
                         * gives to each key of its sentence in head h, at row i*H + h; 0 behind the
                         * last. Before dropout. */
    int heads;
    struct seqs seqs;
    struct drop drop; /* on the weights; element (query row * H + head, key of the sentence) */
};

/* Weights in host memory: [rows, cols] of F32, BF16 or I8. */
struct stored {
    const void *v;
    enum type type;
    const float *scale; /* I8: [rows] */
};

struct adam {
    double lr, beta1, beta2, epsilon;
    int64_t step; /* 1 for the first: bias correction */
    double scale; /* gradients are multiplied by this first: 1 / target tokens */
    double clip;  /* largest norm after scaling; 0: no clipping */
    double limit; /* a larger norm, or one that is not a number, skips the step; 0: no limit */
};

struct backend;

/* Time on the device, for measuring. */
struct op_time {
    const char *name;
    int calls;
    double ms;
    double bytes, flops; /* the fewest that the calls had to move and do; 0: not counted */
};

struct graph; /* a backend's own: ops that were recorded */

/* Of a block of memory; what is used in part should be in memory in part. */
enum use { USED_WHOLE, USED_IN_PART };

/* Required of every backend: memory and order, forward, xent, cast and decoding. Optional, NULL
 * where a backend lacks them:
 * - the ops of backward and of the optimizer, which a device needs for training alone;
 * - bias_bwd, for biases whose gradient no other op of backward sums;
 * - note, recording and measuring.
 * An activation that the backend lacks is told by `activations`. model/needs.c answers a model that
 * needs what is not there with a sentence when it is opened; so a call finds what it needs. */
struct ops {
    const char *name;
    bool host;             /* alloc gives memory of the host */
    int chunk, chunk_rows; /* elements and rows, at most, of a chunk of logits that suits the
                            * device */
    int rows;              /* hypotheses of a step of translation that do */
    bool panels;           /* TYPE_PACKED_I8 is what panels.h describes, in memory of the host: it
                            * may be in a file, used where it lies */
    int activations;       /* linear takes the activation kinds below this one; ACT_KINDS: all */

    /* memory and order: the only calls that may fail or wait */
    enum heed_status (*alloc)(struct backend *be, void **p, size_t bytes, enum use use,
                              struct heed_error *err);
    void (*free)(struct backend *be, void *p);
    void (*zero)(struct backend *be, void *p, size_t bytes);
    void (*upload)(struct backend *be, void *dst, const void *src, size_t bytes);
    /* The same beside the ops that are on their way, none of which may use dst; those that come
     * after wait for it. */
    void (*upload_ahead)(struct backend *be, void *dst, const void *src, size_t bytes);
    /* dst, which must live until then, is there after sync */
    void (*download)(struct backend *be, void *dst, const void *src, size_t bytes);
    enum heed_status (*sync)(struct backend *be, struct heed_error *err);
    void (*close)(struct backend *be);
    /* See heed_engine_note; NULL: there is never anything to say. */
    const char *(*note)(struct backend *be, enum heed_precision precision);

    /* forward */

    /* y = drop(e[id] * sqrt(D) + position[pos])   y [N,D], e [V,D], position [max_length,D] */
    void (*embed)(struct backend *be, struct mat y, const int32_t *id, const int32_t *pos,
                  struct mat e, struct mat position, struct drop d);
    /* z = x wT + b, y = drop(f(z))   y [N,out], x [N,in], w [out,in], b [1,out] or absent */
    void (*linear)(struct backend *be, struct mat y, struct mat x, struct mat w, struct mat b,
                   struct activation f);
    void (*attend)(struct backend *be, const struct attention *a);
    /* y = norm(x + drop(r)) * g + b; xhat [N,D] and rstd [N,1] are kept for backward and may be
     * absent together. y may be x. */
    void (*add_norm)(struct backend *be, struct mat y, struct mat xhat, struct mat rstd,
                     struct mat x, struct mat r, struct mat g, struct mat b, struct drop d);

    /* backward */

    /* de[id] += drop(dy) * sqrt(D) */
    void (*embed_bwd)(struct backend *be, struct mat de, const int32_t *id, struct mat dy,
                      struct drop d);
    /* dw += dyT x; dx = beta*dx + dy w (absent: not wanted). f is the activation that the linear
     * before this one made x with, x = drop(f(z)) with a z of its own: dx is taken back through
     * dropout and f too and is the gradient of that z, and db (absent: not wanted), the gradient of
     * that linear's bias, += column sums of dx as stored. f.z, where present, is read. With an
     * activation, dropout or db, dx is present and beta is 0. */
    void (*linear_bwd)(struct backend *be, struct mat dx, float beta, struct mat db, struct mat dw,
                       struct mat dy, struct mat x, struct mat w, struct activation f);
    /* db += column sums of dy as stored: the gradient of a bias b in y = x wT + b where nothing
     * else sums dy. (linear_bwd's db is the bias of the linear before, add_norm_bwd's drb that of
     * the linear that made r.) */
    void (*bias_bwd)(struct backend *be, struct mat db, struct mat dy);
    /* writes dq, dk, dv of the rows that a's sentences own; reads a's q, k, v, o, lse */
    void (*attend_bwd)(struct backend *be, const struct attention *a, struct mat dq, struct mat dk,
                       struct mat dv, struct mat dout);
    /* dx: gradient of x; dr: of r, the same through dropout; drb (absent: not wanted) += column
     * sums of dr as stored, for the bias that r was made with */
    void (*add_norm_bwd)(struct backend *be, struct mat dx, struct mat dr, struct mat drb,
                         struct mat dg, struct mat db, struct mat dy, struct mat xhat,
                         struct mat rstd, struct mat g, struct drop d);
    /* Label-smoothed cross-entropy (paper 5.4): the target has probability 1 - eps + eps/V, every
     * other id eps/V. logits [N,V] become the gradient of the summed loss when grad is set.
     * loss [N,2]: the smoothed loss and -log p(target) of each row. */
    void (*xent)(struct backend *be, struct mat logits, const int32_t *target, float eps, bool grad,
                 struct mat loss);

    /* optimizer: p, m, v, g are [1,n] */

    /* *out = sum of squares of g, in double; in device memory */
    void (*sqnorm)(struct backend *be, double *out, struct mat g);
    /* One sweep (paper 5.3): reads *sq as sqnorm wrote it and decides on skip and clip. copy, when
     * present, gets p rounded to its type. */
    void (*adam)(struct backend *be, struct mat p, struct mat m, struct mat v, struct mat copy,
                 struct mat g, const double *sq, const struct adam *h);
    /* dst = src, rounded to dst's type; same shape */
    void (*cast)(struct backend *be, struct mat dst, struct mat src);

    /* decoding */

    /* Bytes of a matrix of a packed type. */
    size_t (*pack_bytes)(enum type type, int rows, int cols);
    /* w, of a packed type, gets the weights. In bf16 and int8 they are rounded, and so is every row
     * of x in linear, of which they then take no other form than F32. */
    void (*pack)(struct backend *be, struct mat w, struct stored from);
    /* cache row at[i] = rows row i */
    void (*cache_put)(struct backend *be, struct mat cache, struct mat rows, const int32_t *at);
    /* For each row the k largest log-probabilities, largest first, the lower id first among
     * equals; behind them those of the row's ids in want [N*wants], where -1 is nothing and has
     * -INFINITY. score, id: [N*(k+wants)]. */
    void (*topk)(struct backend *be, struct mat logits, int k, const int32_t *want, int wants,
                 float *score, int32_t *id);

    /* recording; NULL where a device gains nothing by it */

    /* The ops between these two are not run but kept. record: false where they are not, this time;
     * recorded: NULL where they cannot be. They stand between an upload and a download, and were
     * run once before. */
    bool (*record)(struct backend *be);
    struct graph *(*recorded)(struct backend *be);
    /* Runs what was recorded: the same ops on the same memory, whatever it holds by now. */
    void (*replay)(struct backend *be, struct graph *g);
    void (*forget)(struct backend *be, struct graph *g);

    /* measuring; NULL where the device is this machine's own */

    /* Bytes of the device's memory that are in use, by whomever. */
    size_t (*memory)(struct backend *be);
    /* The first call starts a clock for each op. A later one waits, gives the times since then and
     * stops the clocks: at most max of them; returns how many. */
    int (*trace)(struct backend *be, struct op_time *out, int max);
};

struct backend {
    const struct ops *op; /* a backend embeds this struct first in its own */
};

/* Opens a backend by name: see heed_engine_open. close frees it. */
enum heed_status backend_open(struct backend **out, const char *device, int threads,
                              struct heed_error *err);
/* What backend_open chooses from; each in its own directory. */
enum heed_status ref_open(struct backend **out, struct heed_error *err);
/* isa: "baseline", "avx2" or "avx512"; NULL: the best this machine has. */
enum heed_status cpu_open(struct backend **out, const char *isa, int threads,
                          struct heed_error *err);
#ifdef HEED_CUDA
enum heed_status cuda_open(struct backend **out, int device, struct heed_error *err);
#endif

#ifdef __cplusplus
}
#endif
#endif
