/*
 * ops.h - THE CONTRACT: what a device must do to run the model.
 *
 * The model is written once over the table of functions below (struct ops); a backend is a filled
 * table. Each op is as much work as one good kernel does.
 *
 * Rules that every backend keeps:
 * - Compute ops return nothing, allocate nothing that the caller would have to free, and do not
 *   wait for the device. The backend keeps the first error of the device until sync returns it.
 * - Parameter gradients (de, dw, db, drb, dg) are added to the numbers in memory. Activation
 *   gradients are beta*old + new where an op takes a beta; otherwise they overwrite.
 * - Dropout masks are never stored. They are computed again from (seed, site, row, column), see
 *   drop.h; after ReLU and dropout, backward may read them off the zeros of the result instead.
 * - Activation matrices are allocated with their row count rounded up to ROW_PAD, so that matrix
 *   products run on few distinct shapes. An op may overwrite the padding rows between the last row
 *   and the next multiple of ROW_PAD. A view of some of the rows starts at a multiple of ROW_PAD.
 * - Results do not depend on the number of threads, bit for bit.
 *
 * Shape letters: S, T rows of source and target; D model width; F inner width; H heads;
 * V vocabulary; N rows in general. The gradient of x is dx.
 */
#ifndef HEED_OPS_H
#define HEED_OPS_H
#include <math.h>

#include "base/random.h"
#include "heed.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { ROW_PAD = 16 };
enum { HEAD_WIDTH_MAX = 1024 }; /* the widest head that attend takes */
enum { DISTANCES_MAX = 64 };    /* most rows of relative_k and relative_v */

enum type {
    TYPE_F32,
    TYPE_BF16,
    TYPE_F64, /* only in ref, for gradient checks */
    TYPE_I8, /* only in files and struct stored: multiples of the scale of their row, see quant.h */
    /* Packed types: weights of linear and embed in the backend's own layout, for translation; see
     * pack. Single elements cannot be addressed. Matrices whose row counts are multiples of
     * PACK_ROWS and that are contiguous in memory can be used as one matrix. */
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
 * matrix of one row. {0}: the matrix is absent. */
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

/* Which queries attend to which keys. The queries of sentence b are rows [q[b], q[b+1]) of the
 * queries; its keys are the klen[b] rows from row k[b] of the keys. With a causal mask the last
 * query sees all klen[b] keys, the query before it one less, and so on; this covers training and
 * decoding with a KV cache alike. Where `at` is given, key j of sentence b is row at[k[b] + j]
 * instead, so that beam hypotheses share the cache rows of their common prefix. (Backward takes no
 * `at`.) */
struct seqs {
    int n;
    const int32_t *q;        /* [n+1] */
    const int32_t *k, *klen; /* [n] */
    int max_q, max_k;        /* the largest number of queries and of keys of a sentence */
    bool causal;
    const int32_t *at;  /* NULL: the keys of a sentence are consecutive rows */
    const int32_t *pos; /* [q[n]] the position of each query in its sentence; for rotate, not read
                         * by attend */
    const int32_t *from, *to; /* [n] rows of states; for attend_state alone */
};

struct drop {
    float p; /* probability that an element is set to 0; 0: no dropout */
    uint64_t seed;
    uint32_t site; /* which dropout of the model */
};

/* The identity and what linear can do to a product. */
enum activation_kind { ACT_NONE, ACT_RELU, ACT_GELU, ACT_SILU, ACT_KINDS };

/* Whether backward needs the slope of this kind, so that linear stores it. For ReLU its output
 * after dropout is enough: an element above 0 was above 0 before and was not dropped; at 0 the
 * gradient is 0. */
static inline bool activation_keeps_slope(enum activation_kind kind)
{
    return kind != ACT_NONE && kind != ACT_RELU;
}

/* What linear does to the product z = x wT + b before it stores y: y = drop(f(z)), where f is the
 * function that kind names. {0}: y = z. */
struct activation {
    enum activation_kind kind;
    struct mat slope; /* a matrix like y, in which linear stores the derivative of y by z, dropout
                       * included, for backward. Absent where activation_keeps_slope is false, and
                       * where no backward follows */
    struct drop drop;
};

#define NORM_EPSILON 1e-6 /* added to the variance in add_norm */

/* Smallest sum of weights that linear attention divides by. f32 has the inverse of this sum and its
 * product with any gradient; exp of a query or key of -70 is already below it. */
#define LINEAR_SUM_MIN 1e-30

/* softmax(q kT / sqrt(d_k)) v, head by head (paper 3.2). There may be fewer key/value heads, KV,
 * than query heads, H: each is then shared by H / KV query heads that follow each other.
 *
 * The members from `window` on are the forms of attention besides the paper's; where all are 0 or
 * absent, the paper's. Several depend on how far a key is from a query: key j of a sentence is at
 * position j, and the last query is at the position of the last key; there are then at least as
 * many keys as queries. */
struct attention {
    struct mat q, k, v;  /* [Nq, H*dk], [Nk, KV*dk], [Nk, KV*dv]; may be column views of one matrix;
                          * in forward k and v may be BF16 where q is F32 */
    struct mat o;        /* [Nq, H*dv] out */
    struct mat lse;      /* [Nq, H] out: log of the sum of exp of the scaled scores, for backward */
    struct mat weights;  /* [Nq*H, max_k] F32 out, for alignments and pictures; usually absent. Row
                          * i*H + h has the attention weights of query i in head h, before dropout,
                          * and 0 after the last key of the sentence. */
    int heads, kv_heads; /* kv_heads divides heads; 0: as many as heads */
    struct seqs seqs;
    struct drop drop; /* on the weights; its row is query row * H + head, its column the number of
                       * the key in the sentence */

    int window, global; /* see attention_sees; window 0: a query sees every key */
    bool alibi;         /* subtracts attention_slope * distance from each score (Press et al.) */
    /* Learned vectors for distances (Shaw et al.), shared by the heads: with R = 2 * clip + 1 rows,
     * row clip + d is for a key d positions after the query; d is limited to -clip to clip. They
     * are added to the keys in the scores and to the values in the output. F32, present or absent
     * together. */
    struct mat relative_k, relative_v; /* [R,dk], [R,dv] */
    /* Additive attention (Bahdanau et al.): the score of a query and a key is the dot product of
     * this row of their head with tanh(q + k), without 1 / sqrt(d_k). F32. */
    struct mat additive; /* [H,dk] */
};

/* The gradients of an attention. */
struct attention_grad {
    struct mat dout;                     /* of o: given */
    struct mat dq, dk, dv;               /* written, in the rows of the sentences */
    struct mat drelative_k, drelative_v; /* added to, as parameters are; present where the member */
    struct mat dadditive;                /* of struct attention is */
};

static inline int attention_kv_heads(const struct attention *a)
{
    return a->kv_heads ? a->kv_heads : a->heads;
}

/* Query heads that share a key/value head: head h uses key/value head h / attention_shared(a). */
static inline int attention_shared(const struct attention *a)
{
    return a->heads / attention_kv_heads(a);
}

/* Widths of a head in q and k, and in v and o. */
static inline int attention_dk(const struct attention *a)
{
    return a->q.cols / a->heads;
}
static inline int attention_dv(const struct attention *a)
{
    return a->o.cols / a->heads;
}

/* The keys that a query sees: [0, first) and [from, to), where first <= from. */
struct key_span {
    int first, from, to;
};

/* Of n keys, those that a query at this position sees: with a causal mask none behind it; with a
 * window those at most `window` positions away and the first `global` of the sentence. A query
 * that is among the first `global` itself is not limited by the window. */
ON_DEVICE static inline struct key_span attention_sees(const struct attention *a, int position,
                                                       int n)
{
    struct key_span s = {0, 0, n};
    if (a->seqs.causal && position + 1 < n) s.to = position + 1;
    if (a->window && position >= a->global) {
        if (position - a->window > 0) s.from = position - a->window;
        if (position + a->window + 1 < s.to) s.to = position + a->window + 1;
        s.first = a->global < s.from ? a->global : s.from;
    }
    if (s.to < 0) s.to = 0;
    return s;
}

/* What alibi subtracts from a scaled score of this head for each position of distance. */
ON_DEVICE static inline double attention_slope(const struct attention *a, int head)
{
    return a->alibi ? exp2(-8.0 * (head + 1) / a->heads) : 0;
}

/* The row of relative_k and relative_v for a key at distance d = its position - the query's. */
ON_DEVICE static inline int attention_relative_row(const struct attention *a, int d)
{
    int clip = a->relative_k.rows / 2;
    return clip + (d < -clip ? -clip : d > clip ? clip : d);
}

/* The rules that the matrices of an attention keep, for assertions. */
static inline bool attention_fits(const struct attention *a)
{
    int dk = attention_dk(a), dv = attention_dv(a), kv = attention_kv_heads(a);
    bool relative = a->relative_k.p, additive = a->additive.p;
    if (relative && (a->relative_k.cols != dk || a->relative_v.cols != dv || additive ||
                     a->relative_k.rows != a->relative_v.rows || a->relative_k.rows % 2 == 0 ||
                     a->relative_k.rows > DISTANCES_MAX))
        return false;
    if (additive && (a->additive.rows != a->heads || a->additive.cols != dk)) return false;
    return a->heads == kv * attention_shared(a) && a->q.cols == a->heads * dk &&
           a->o.cols == a->heads * dv && a->k.cols == kv * dk && a->v.cols == kv * dv &&
           dk <= HEAD_WIDTH_MAX && dv <= HEAD_WIDTH_MAX;
}

/* Linear attention (Katharopoulos et al. 2020): o = phi(q) S / phi(q) z, head by head, with phi(x)
 * = elu(x) + 1 on each number, S [dk,dv] the sum of phi(k)T v over the keys that the query sees and
 * z [dk] the sum of their phi(k). A query that sees no key gets 0. It takes a struct attention with
 * these differences: lse is phi(q) z; weights are phi(q) phi(k)T / phi(q) z; nothing is dropped;
 * with a causal mask a sentence has as many keys as queries.
 *
 * A state is S and z of the keys seen so far: a row of a matrix, F32, with for each key/value head
 * S row by row and then z. This is its width. */
static inline int attention_state_width(const struct attention *a)
{
    return attention_kv_heads(a) * attention_dk(a) * (attention_dv(a) + 1);
}

enum { EXPERTS_MAX = 64, EXPERTS_PER_ROW_MAX = 8 };

/* How the rows of a matrix [N,D] are sent to E experts, K of them for each row. The router's logits
 * are a product of the row with a matrix [E,D], plus noise in training; p is their softmax. A row
 * chooses the K experts with the largest p, the largest first and among equals the lower number
 * first. Its gates are their p divided by the sum of these p; with K = 1 the gate is p
 * itself, so that the router has a gradient.
 *
 * Choice k of row i is number i*K + k. An expert takes the choices of it in the order of their
 * numbers, up to its capacity; the others are dropped. Copies of the rows that were taken are
 * gathered in matrices of routing_taken rows, in which expert e has the rows from start[e] on, in
 * that order. start[e] is a multiple of ROW_PAD; the padding rows before start[e+1] may be
 * overwritten by any op, and nothing reads them. The arrays are in device memory, and the host does
 * not know what they hold. */
struct routing {
    int experts, per_row; /* E, K */
    int capacity;         /* choices that an expert takes at most; 0: all of them */
    float noise;          /* added to a logit: this times drop_noise of (draw, row, expert) */
    struct drop draw;
    /* The results of route. Real numbers have the type of the router's matrix. */
    struct mat p;          /* [N,E] */
    struct mat gate;       /* [N,K] also of dropped choices */
    int32_t *chosen;       /* [N*K] the expert of each choice */
    int32_t *place;        /* [N*K] its row among those taken; -1: dropped */
    int32_t *asked, *rows; /* [E] choices of each expert, and how many of them it takes */
    int32_t *start;        /* [E+1] */
    struct mat tally;      /* [1,2E+1] the numbers in asked and in rows, and E * the sum over the
                            * experts of (asked / (N*K)) * (the sum of their column of p): the loss
                            * of unbalanced experts (Fedus et al. 2021), N where all are alike.
                            * Absent: not wanted */
};

/* Rows of a matrix that has room for all rows taken. */
static inline int routing_taken(int n, int per_row, int experts)
{
    int choices = n * per_row, begun = choices < experts ? choices : experts;
    return choices + begun * (ROW_PAD - 1);
}

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
    double bytes, flops; /* least memory traffic and arithmetic the calls need; 0: not counted */
};

struct graph; /* a captured sequence of ops; each backend defines its own */

/* ---- links: transfers between the devices of the ranks of a job ---- */

/* Names a device: the same bytes in all processes that use it, others for any other device of any
 * host. */
struct device_id {
    unsigned char bytes[16];
};

/* What the ranks of one link open it with. Rank 0 makes it and hands it to the others. */
struct link_id {
    char bytes[128];
};

/* What a backend says of itself before a link is opened. */
struct link_info {
    struct device_id device;
    char library[32]; /* name and version, for a person */
};

enum link_kind {
    LINK_SEND,    /* x is sent to `rank`, which receives as many bytes from this one */
    LINK_RECEIVE, /* x is received from `rank` */
    LINK_SUM      /* x on `rank` becomes the sum of x of all ranks, added in an order that is up to
                   * the library; every rank has this part, and keeps its x unless it is `rank` */
};

/* One transfer of a group. */
struct link_part {
    enum link_kind kind;
    struct mat x; /* [1,n] n >= 1; F32 for LINK_SUM */
    int rank;     /* not this one, but for LINK_SUM */
};

/* Order: load; then open on all ranks, with the id that make_id gave rank 0; move and wait; close.
 *
 * Transfers go on beside the ops that are called after them. A group of transfers begins when all
 * ops that were called before it are done and the group before it is complete. All ranks call move
 * in the same order, with groups that fit each other. Like ops, move and wait never wait for the
 * device; an error of a transfer comes out of sync. */
struct link_ops {
    /* Loads the library that moves bytes between devices. HEED_EUNSUPPORTED where there is none. */
    enum heed_status (*load)(struct backend *be, struct link_info *out, struct heed_error *err);
    enum heed_status (*make_id)(struct backend *be, struct link_id *out, struct heed_error *err);
    /* Waits until all ranks have called it. A backend has one link at a time. */
    enum heed_status (*open)(struct backend *be, const struct link_id *id, int rank, int ranks,
                             struct heed_error *err);
    /* Waits for the transfers and for the other ranks of the host to close theirs. With `abandon`
     * it waits for nothing, and transfers that are under way may be left half done. Closes nothing
     * where no link is open. */
    void (*close)(struct backend *be, bool abandon);
    /* Begins a group of n transfers. Until a wait that is called later, no op may write what is
     * sent, nor use what is received or summed. */
    void (*move)(struct backend *be, const struct link_part *part, int n);
    /* The ops that are called after it wait for all transfers. */
    void (*wait)(struct backend *be);
    /* Seconds in which the device had nothing to compute because of wait, since the link was
     * opened; up to the last sync. */
    double (*waited)(struct backend *be);
};

/* How much of a block of memory its owner will touch. Of a block that is used in part, the pages
 * that are never touched should take no memory. */
enum use { USED_WHOLE, USED_IN_PART };

/* Required of every backend: memory and order, forward, xent, cast and decoding. Optional, NULL
 * where a backend lacks them:
 * - the ops of backward and of the optimizer, which only training uses;
 * - bias_bwd, for biases whose gradient no other op of backward sums;
 * - add and norm, and their backward, for models whose norm comes before the sub-layer;
 * - gate and gate_bwd, for a gated feed-forward;
 * - rotate, for rotary positions;
 * - attend_linear, its backward, linear_state and attend_state, for linear attention;
 * - route, dispatch, experts_linear and combine, and experts_linear_bwd and route_bwd, for a
 * mixture of experts;
 * - linear_topk, which the model replaces by linear and topk where it is missing;
 * - links between devices, note, graph capture and measuring.
 * A backend that lacks an activation says so in `activations`, and one that computes only the
 * paper's attention in `attend_forms`. When a model is opened,
 * model/needs.c compares what its configuration needs with this table and answers with a sentence
 * where something is missing; so the model calls an op without asking whether it is there. */
struct ops {
    const char *name;
    bool host;             /* alloc returns memory that the host can read and write */
    int chunk, chunk_rows; /* preferred largest number of elements, and of rows, of the chunk of
                            * logits that the model computes at a time */
    int chunk_bf16;        /* chunk, where logits are bf16 */
    int step_rows;         /* preferred number of hypotheses per decoding step */
    int linear_topk_most;  /* up to this k linear_topk is faster than linear and topk */
    bool panels;           /* TYPE_PACKED_I8 has the layout of panels.h and is read from host
                            * memory, so that a mapped file can be used without a copy */
    bool attend_forms;     /* attend takes the forms of attention besides the paper's */
    int activations;       /* linear takes the activation kinds below this one; ACT_KINDS: all */

    /* memory and order: the only calls that may fail or wait */
    enum heed_status (*alloc)(struct backend *be, void **p, size_t bytes, enum use use,
                              struct heed_error *err);
    void (*free)(struct backend *be, void *p);
    void (*zero)(struct backend *be, void *p, size_t bytes);
    void (*upload)(struct backend *be, void *dst, const void *src, size_t bytes);
    /* Like upload, but concurrent with the ops that were called before, none of which may use dst.
     * The ops that are called after it wait for it. */
    void (*upload_ahead)(struct backend *be, void *dst, const void *src, size_t bytes);
    /* dst holds the data after the next sync and must stay valid until then. */
    void (*download)(struct backend *be, void *dst, const void *src, size_t bytes);
    enum heed_status (*sync)(struct backend *be, struct heed_error *err);
    void (*close)(struct backend *be);
    /* What heed_engine_note returns; NULL: nothing to say in any precision. */
    const char *(*note)(struct backend *be, enum heed_precision precision);

    /* forward */

    /* y = drop(e[id] * sqrt(D) + position[pos])   y [N,D], e [V,D], position [max_length,D] or
     * absent: nothing is added, and pos is not read */
    void (*embed)(struct backend *be, struct mat y, const int32_t *id, const int32_t *pos,
                  struct mat e, struct mat position, struct drop d);
    /* z = x wT + b, y = drop(f(z))   y [N,out], x [N,in], w [out,in], b [1,out] or absent */
    void (*linear)(struct backend *be, struct mat y, struct mat x, struct mat w, struct mat b,
                   struct activation f);
    /* h = drop(silu(left) * right), where left and right are the halves of the columns of z
     * h [N,F], z [N,2F] */
    void (*gate)(struct backend *be, struct mat h, struct mat z, struct drop d);
    void (*attend)(struct backend *be, const struct attention *a);
    /* Linear attention; in time and memory that grow with the length of a sentence, not with its
     * square. A query whose sum of weights is below LINEAR_SUM_MIN has the output 0. */
    void (*attend_linear)(struct backend *be, const struct attention *a);
    /* y = norm(x + drop(r)) * g + b; xhat [N,D] and rstd [N,1] are kept for backward and may be
     * absent together. y may be x. */
    void (*add_norm)(struct backend *be, struct mat y, struct mat xhat, struct mat rstd,
                     struct mat x, struct mat r, struct mat g, struct mat b, struct drop d);
    /* The two halves of add_norm, for models whose norm comes before the sub-layer:
     * y = x + drop(r), where y may be x; and y = norm(x) * g + b with xhat and rstd as above. */
    void (*add)(struct backend *be, struct mat y, struct mat x, struct mat r, struct drop d);
    void (*norm)(struct backend *be, struct mat y, struct mat xhat, struct mat rstd, struct mat x,
                 struct mat g, struct mat b);

    /* Rotary positions, in place: of every table.cols columns of a row of x, turns each pair (2i,
     * 2i+1) by the angle whose cosine and sine are table[pos][2i] and table[pos][2i+1], or by the
     * opposite angle, which gives the gradient.   x [N, n*table.cols], table [max_length, even] */
    void (*rotate)(struct backend *be, struct mat x, const int32_t *pos, struct mat table,
                   bool opposite);

    /* A mixture of experts: route; dispatch; experts_linear any number of times; combine. */

    /* Writes the results of r.   x [N,D], w [E,D] of the master's type */
    void (*route)(struct backend *be, const struct routing *r, struct mat x, struct mat w);
    /* Row place[i*K + k] of y = row i of x, times the gate of that choice if `gated`.
     * y [taken,D], x [N,D] */
    void (*dispatch)(struct backend *be, struct mat y, struct mat x, const struct routing *r,
                     bool gated);
    /* linear with the rows, the matrix and the bias of each expert; a row of the dropout mask is
     * the row in y.   y [taken,out], x [taken,in], w [E*out,in], b [E,out] */
    void (*experts_linear)(struct backend *be, struct mat y, struct mat x, struct mat w,
                           struct mat b, struct activation f, const struct routing *r);
    /* Row i of y = the sum over its choices that were taken of gate * row place of x.
     * y [N,D], x [taken,D] */
    void (*combine)(struct backend *be, struct mat y, struct mat x, const struct routing *r);

    /* backward */

    /* de[id] += drop(dy) * scale. The gradient of embed's e has scale sqrt(D), that of position has
     * scale 1 and the positions as ids. */
    void (*embed_bwd)(struct backend *be, struct mat de, const int32_t *id, struct mat dy,
                      double scale, struct drop d);
    /* dw += dyT x; dx = beta*dx + dy w (dx absent: not computed). f is the activation with which
     * the linear before this one computed x = drop(f(z)). dx is multiplied by the derivative of
     * that too, which is f.slope where the kind keeps one and follows from x and f.drop otherwise.
     * So dx becomes the gradient of that linear's z, and db (absent: not computed) += column sums
     * of dx as stored, the gradient of that linear's bias. Where f is not {0} or db is present, dx
     * is present and beta is 0. */
    void (*linear_bwd)(struct backend *be, struct mat dx, float beta, struct mat db, struct mat dw,
                       struct mat dy, struct mat x, struct mat w, struct activation f);
    /* db += column sums of dy as stored: the gradient of a bias b in y = x wT + b where nothing
     * else sums dy. (linear_bwd's db is the bias of the linear before, add_norm_bwd's drb that of
     * the linear that made r.) */
    void (*bias_bwd)(struct backend *be, struct mat db, struct mat dy);
    /* dz: the gradient of gate's z; db (absent: not computed) += column sums of dz as stored, the
     * gradient of the bias of the linear that computed z   dz, z [N,2F], dh [N,F], db [1,2F] */
    void (*gate_bwd)(struct backend *be, struct mat dz, struct mat db, struct mat dh, struct mat z,
                     struct drop d);
    /* The gradients of experts_linear: db[e] += column sums of the rows of dy of expert e, dw[e] +=
     * dyT x over these rows; dx = dy w[e], multiplied by the derivative of the activation f with
     * which x was computed, as in linear_bwd.   shapes as in experts_linear, dw like w, db like b
     */
    void (*experts_linear_bwd)(struct backend *be, struct mat dx, struct mat db, struct mat dw,
                               struct mat dy, struct mat x, struct mat w, struct activation f,
                               const struct routing *r);
    /* The gradients of route, dispatch and combine. With dl the gradient of the logits,
     * dx = beta*dx + the sum of the rows of dtaken that were taken of the row + dl w, and
     * dw += dlT x. dy is the gradient of combine's result and y what it combined; dtaken is the
     * gradient of dispatch's result. dl comes from the gates, and from balance times the loss in
     * r->tally, in which `asked` counts as a constant. dl overwrites r->p.
     * dx, dy, x [N,D], y, dtaken [taken,D], w, dw [E,D] */
    void (*route_bwd)(struct backend *be, struct mat dx, float beta, struct mat dw, struct mat dy,
                      struct mat y, struct mat dtaken, struct mat x, struct mat w,
                      const struct routing *r, float balance);
    /* Reads what attend has read, and o and lse. */
    void (*attend_bwd)(struct backend *be, const struct attention *a,
                       const struct attention_grad *g);
    /* The gradients of attend_linear; reads a's q, k, v, o and lse. */
    void (*attend_linear_bwd)(struct backend *be, const struct attention *a,
                              const struct attention_grad *g);
    /* dx: the gradient of x; dr = drop(dx): that of r; drb (absent: not computed) += column sums of
     * dr as stored: the gradient of the bias of the linear that computed r */
    void (*add_norm_bwd)(struct backend *be, struct mat dx, struct mat dr, struct mat drb,
                         struct mat dg, struct mat db, struct mat dy, struct mat xhat,
                         struct mat rstd, struct mat g, struct drop d);
    /* dr = drop(dy): the gradient of r in y = x + drop(r), of which x has the gradient dy; drb as
     * in add_norm_bwd */
    void (*add_bwd)(struct backend *be, struct mat dr, struct mat drb, struct mat dy,
                    struct drop d);
    /* dx = beta*dx + the gradient of x in y = norm(x) * g + b */
    void (*norm_bwd)(struct backend *be, struct mat dx, float beta, struct mat dg, struct mat db,
                     struct mat dy, struct mat xhat, struct mat rstd, struct mat g);
    /* Label-smoothed cross-entropy (paper 5.4): the target has probability 1 - eps + eps/V, every
     * other id eps/V. logits [N,V] become the gradient of the summed loss when grad is set.
     * loss [N,2]: the smoothed loss and -log p(target) of each row. */
    void (*xent)(struct backend *be, struct mat logits, const int32_t *target, float eps, bool grad,
                 struct mat loss);

    /* optimizer: p, m, v, g are [1,n] */

    /* *out = sum of squares of g, in double; out points to device memory */
    void (*sqnorm)(struct backend *be, double *out, struct mat g);
    /* One sweep over all parameters (paper 5.3). It reads *sq, which sqnorm wrote, and from it
     * decides whether to skip the step or clip the gradient. copy, where present, becomes p rounded
     * to copy's type. */
    void (*adam)(struct backend *be, struct mat p, struct mat m, struct mat v, struct mat copy,
                 struct mat g, const double *sq, const struct adam *h);
    /* x += y: gradients of two parts of a batch; x, y [1,n] of the master's type */
    void (*accumulate)(struct backend *be, struct mat x, struct mat y);
    /* dst = src, rounded to dst's type; same shape */
    void (*cast)(struct backend *be, struct mat dst, struct mat src);

    /* decoding */

    /* Bytes of a matrix of a packed type. */
    size_t (*pack_bytes)(enum type type, int rows, int cols);
    /* Stores weights in w, whose type is packed. BF16 and I8 round the weights; linear then rounds
     * every row of x in the same way. With packed weights x and y of linear are F32. */
    void (*pack)(struct backend *be, struct mat w, struct stored from);
    /* cache row at[i] = rows row i */
    void (*cache_put)(struct backend *be, struct mat cache, struct mat rows, const int32_t *at);
    /* Linear attention in a number of operations that does not depend on the lengths of sentences.
     *
     * states row b = the state of all keys of sentence b; of a, only k, v and the shape are read */
    void (*linear_state)(struct backend *be, struct mat states, const struct attention *a);
    /* o of a's queries, where those of sentence b see the keys in the state of row from[b]; -1:
     * none. Where `to` is given, each sentence has one query; the key and value in the same row of
     * k and v are added to its state first, and the sum becomes row to[b], which is in no `from`.
     * Without `to`, the keys are read for the weights alone. */
    void (*attend_state)(struct backend *be, struct mat states, const struct attention *a);
    /* For each row of logits the k largest log-probabilities, largest first, among equals the lower
     * id first; then the log-probabilities of the row's ids in want [N*wants], -INFINITY where an
     * id is -1. score, id: [N*(k+wants)]. */
    void (*topk)(struct backend *be, struct mat logits, int k, const int32_t *want, int wants,
                 float *score, int32_t *id);
    /* topk of the logits x wT, the same bits as linear and topk give, without a matrix of logits.
     * x [N,D], w [V,D] of a packed type */
    void (*linear_topk)(struct backend *be, struct mat x, struct mat w, int k, const int32_t *want,
                        int wants, float *score, int32_t *id);

    /* graph capture; NULL where it would not make a device faster */

    /* The ops between capture_begin and capture_end are not run but become a graph. They run no
     * upload or download and were run once before. capture_begin returns false where the device
     * cannot capture at present; then the ops run as usual and capture_end is not called.
     * capture_end returns NULL where the capture failed. */
    bool (*capture_begin)(struct backend *be);
    struct graph *(*capture_end)(struct backend *be);
    /* Runs the captured ops on the memory they were called with, whatever it holds now. */
    void (*graph_launch)(struct backend *be, struct graph *g);
    void (*graph_free)(struct backend *be, struct graph *g);

    const struct link_ops *link; /* NULL: devices of this kind have no links */

    /* measuring; NULL where the device is the CPU */

    /* Bytes of device memory in use by all processes. */
    size_t (*memory_used)(struct backend *be);
    /* The first call starts to time every op. The next call waits for the device, stores the times
     * since the first in out, at most max of them, stops timing and returns how many there are. */
    int (*trace)(struct backend *be, struct op_time *out, int max);
};

struct backend {
    const struct ops *op; /* every backend has a struct of its own that begins with this one */
};

/* The rows of w [E*out,in] that are expert e's. Of a packed type out is a multiple of PACK_ROWS. */
static inline struct mat mat_expert(const struct ops *op, struct mat w, int e, int experts)
{
    int out = w.rows / experts;
    if (!type_packed(w.type)) return mat_rows(w, e * out, out);
    return mat_make((char *)w.p + op->pack_bytes(w.type, e * out, w.cols), out, w.cols, w.type);
}

/* Opens the backend of a device: see heed_engine_open for its names. op->close frees it. */
enum heed_status backend_open(struct backend **out, const char *device, int threads,
                              struct heed_error *err);
/* The backends that backend_open chooses from; each has its own directory. */
enum heed_status ref_open(struct backend **out, struct heed_error *err);
/* isa: a name of isa.h, such as "avx2"; NULL: the best that this machine has. */
enum heed_status cpu_open(struct backend **out, const char *isa, int threads,
                          struct heed_error *err);
/* The names of the sets of kernels that this machine has, best first; NULL after the last */
const char *cpu_isa(int i);
#ifdef HEED_CUDA
enum heed_status cuda_open(struct backend **out, int device, struct heed_error *err);
#endif

#ifdef __cplusplus
}
#endif
#endif
