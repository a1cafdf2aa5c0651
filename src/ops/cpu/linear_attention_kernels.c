/*
 * linear_attention_kernels.c - linear attention of one sentence and one key/value head, and its
 * gradients (see ops.h). Compiled once per ISA; see linear_attention.h.
 *
 * With g = dout / (phi(q) z) and e = - (dout . o) / (phi(q) z) of each query, the output and the
 * three gradients are the same sum over the positions j that position i sees, or is seen by:
 *
 *   sum over j of (x_i . y_j) z_j
 *
 *                                        x          y          z
 *   phi(q) S, phi(q) z                   phi(q)     phi(k)     [v, 1]
 *   dq / phi'(q)                         [g, e]     [v, 1]     phi(k)
 *   dk / phi'(k)                         [v, 1]     [g, e]     phi(q)
 *   dv                                   phi(k)     phi(q)     g
 *
 * sweep() computes it in a time that grows with the number of positions: it goes over them in
 * chunks and keeps the sum of yT z over the chunks that lie behind, the state. With a causal mask a
 * chunk is
 *
 *   out = x state + mask(x yT) z;   state += yT z
 *
 * from the first chunk to the last for queries, which see what is before them, and from the last to
 * the first for keys. Without a mask the state of the whole sentence comes first, then out = x
 * state. Where a state is too large for the work space, it is computed in tiles of some columns of
 * z. Rows are copied to panels (panel.h), y transposed.
 */
#include "base/minmax.h"
#include "ops/cpu/attention.h"
#include "ops/cpu/linear_attention.h"
#include "ops/cpu/panel.h"

enum {
    WIDEST = HEAD_WIDTH_MAX + 16, /* a head and one number more, in whole vectors */
    CHUNK = 64,                   /* most positions of a chunk; a multiple of 16, as all chunks */
    CHUNK_PANEL = CHUNK * 80,     /* preferred floats of a panel */
    CHUNK_PANEL_MAX = 16 * WIDEST,
    STATE = (HEAD_WIDTH_MAX + 1) * 32 /* floats of a tile of the state */
};

struct panels {
    PANEL(x, CHUNK_PANEL_MAX);
    PANEL(yt, CHUNK_PANEL_MAX);
    PANEL(z, CHUNK_PANEL_MAX);
    PANEL(out, CHUNK_PANEL_MAX);
    PANEL(p, CHUNK *CHUNK); /* x yT */
    PANEL(state, STATE);
    PANEL(scale, CHUNK); /* of each query: 1 / (phi(q) z) ... */
    PANEL(error, CHUNK); /* ... and e */
};
_Static_assert(sizeof(struct panels) <= ATTEND_WORK, "the work space of a thread");

/* What x, y and z are. */
enum factor {
    QUERIES,  /* phi(q) */
    KEYS,     /* phi(k) */
    VALUES,   /* v, and in x and y also a 1 */
    GRADIENTS /* g, and in x and y also e */
};

/* One sentence and one key/value head. */
struct job {
    const struct attention *a;
    const struct attention_grad *g; /* backward */
    int kv_head;
    int q0, nq, k0, nk; /* first row and number of rows of queries and keys */
    int dk, dv;
    int chunk; /* positions of a chunk */
};

static struct job job_make(const struct attention *a, int sentence, int kv_head)
{
    const struct seqs *s = &a->seqs;
    struct job j = {.a = a, .kv_head = kv_head};
    j.q0 = s->q[sentence];
    j.nq = s->q[sentence + 1] - j.q0;
    j.k0 = s->k[sentence];
    j.nk = s->klen[sentence];
    j.dk = attention_dk(a);
    j.dv = attention_dv(a);
    int fit = CHUNK_PANEL / round_up(int_max(j.dk, j.dv) + 1) / 16 * 16;
    j.chunk = int_max(16, int_min(CHUNK, fit));
    return j;
}

/* Some columns of z and of the state. In the forward pass the tile of the first column has one
 * column more, for [v, 1]. */
struct tile {
    int col, cols;
    bool one;
    int ld; /* of the panels z, out and state */
};

static struct tile tile_make(int col, int cols, int depth, bool forward)
{
    int fit = int_max(16, STATE / depth / 16 * 16);
    struct tile t = {.col = col, .cols = int_min(cols - col, fit), .one = forward && col == 0};
    if (round_up(t.cols + t.one) > fit) t.cols = fit - 16;
    t.ld = round_up(t.cols + t.one);
    return t;
}

/* ---- phi ---- */

INLINE vf phi(vf x)
{
    return vf_pick(x > 0.0f, x + 1.0f, vf_exp(x));
}
INLINE vf phi_slope(vf x)
{
    return vf_pick(x > 0.0f, vf_all(1.0f), vf_exp(x));
}

static void phi_panel(float *x, int n)
{
    for (int i = 0; i < n; i += W) store(x + i, phi(load(x + i)));
}

static float inverse(float sum)
{
    return sum >= (float)LINEAR_SUM_MIN ? 1.0f / sum : 0.0f;
}

/* ---- loading the factors ---- */

static bool of_queries(enum factor f)
{
    return f == QUERIES || f == GRADIENTS;
}
static bool is_phi(enum factor f)
{
    return f == QUERIES || f == KEYS;
}
/* Columns of a factor as z, and as x or y. */
static int factor_width(const struct job *j, enum factor f)
{
    return is_phi(f) ? j->dk : j->dv;
}
static int factor_depth(const struct job *j, enum factor f)
{
    return is_phi(f) ? j->dk : j->dv + 1;
}

/* Rows of a factor from position i on, from column col of the head on. */
static struct source factor_rows(const struct job *j, enum factor f, int head, int i, int col)
{
    const struct attention *a = j->a;
    switch (f) {
    case QUERIES:
        return (struct source){a->q, NULL, j->q0 + i, head * j->dk + col};
    case KEYS:
        return (struct source){a->k, NULL, j->k0 + i, j->kv_head * j->dk + col};
    case VALUES:
        return (struct source){a->v, NULL, j->k0 + i, j->kv_head * j->dv + col};
    default:
        return (struct source){j->g->dout, NULL, j->q0 + i, head * j->dv + col};
    }
}

INLINE float dot_as(const char *x, const char *y, int n, enum type t)
{
    vf sum = {0};
    for (int c = 0; c < n; c += W) sum += load_edge(x, c, n, t) * load_edge(y, c, n, t);
    return vf_sum(sum);
}

/* scale and error of the queries [i, i + n) of a head. */
static void load_errors(const struct job *j, int head, int i, int n, struct panels *m)
{
    struct mat o = j->a->o, dout = j->g->dout;
    for (int r = 0; r < n; r++) {
        int row = j->q0 + i + r;
        const char *x = mat_at(o, row, head * j->dv), *y = mat_at(dout, row, head * j->dv);
        float delta =
            o.type == TYPE_BF16 ? dot_as(x, y, j->dv, TYPE_BF16) : dot_as(x, y, j->dv, TYPE_F32);
        m->scale[r] = inverse(*(const float *)mat_at(j->a->lse, row, head));
        m->error[r] = -delta * m->scale[r];
    }
    for (int r = n; r < round_up(n); r++) m->scale[r] = m->error[r] = 0.0f;
}

/* row[n] = x, where n columns and their padding have been written. */
static void put_behind(float *row, int n, float x)
{
    if (n % W == 0) store(row + n, (vf){0});
    row[n] = x;
}

static void scale_rows(float *x, int ld, int n, const float *scale)
{
    for (int r = 0; r < n; r++)
        for (int c = 0; c < ld; c += W) store(x + r * ld + c, load(x + r * ld + c) * scale[r]);
}

/* x [n][round_up(depth)] */
static void load_x(const struct job *j, enum factor f, int head, int i, int n, struct panels *m)
{
    int width = factor_width(j, f), ld = round_up(factor_depth(j, f));
    load_rows(m->x, ld, factor_rows(j, f, head, i, 0), n, width, 1.0f);
    if (is_phi(f)) {
        phi_panel(m->x, n * ld);
        return;
    }
    if (f == GRADIENTS) {
        load_errors(j, head, i, n, m);
        for (int r = 0; r < n; r++)
            for (int c = 0; c < width; c += W)
                store(m->x + r * ld + c, load(m->x + r * ld + c) * m->scale[r]);
    }
    for (int r = 0; r < n; r++)
        put_behind(m->x + r * ld, width, f == GRADIENTS ? m->error[r] : 1.0f);
}

/* yt [depth][round_up(n)] */
static void load_y(const struct job *j, enum factor f, int head, int i, int n, struct panels *m)
{
    int width = factor_width(j, f), ld = round_up(n);
    load_columns(m->yt, ld, factor_rows(j, f, head, i, 0), n, width);
    if (is_phi(f)) {
        phi_panel(m->yt, width * ld);
        return;
    }
    if (f == GRADIENTS) load_errors(j, head, i, n, m);
    for (int c = 0; c < ld; c += W) {
        for (int d = 0; d < width && f == GRADIENTS; d++)
            store(m->yt + d * ld + c, load(m->yt + d * ld + c) * load(m->scale + c));
        store(m->yt + width * ld + c, f == GRADIENTS ? load(m->error + c) : vf_all(1.0f));
    }
}

/* z [n][t->ld] */
static void load_z(const struct job *j, enum factor f, int head, int i, int n, const struct tile *t,
                   struct panels *m)
{
    load_rows(m->z, t->ld, factor_rows(j, f, head, i, t->col), n, t->cols, 1.0f);
    if (is_phi(f)) phi_panel(m->z, n * t->ld);
    if (f == GRADIENTS) {
        load_errors(j, head, i, n, m);
        scale_rows(m->z, t->ld, n, m->scale);
    }
    for (int r = 0; r < n && t->one; r++) put_behind(m->z + r * t->ld, t->cols, 1.0f);
}

/* ---- products ---- */

/* out [n][ld] = x [n][depth] state [depth][ld] */
static void from_state(struct panels *m, const struct tile *t, int n, int depth)
{
    int ldx = round_up(depth);
    for (int r = 0; r < n; r += ROWS)
        product(m->out + r * t->ld, t->ld, false, (struct left){m->x + r * ldx, ldx, 1}, m->state,
                t->ld, int_min(ROWS, n - r), depth, t->ld);
}

/* state [depth][ld] (+)= yT [depth][n] z [n][ld] */
static void to_state(struct panels *m, const struct tile *t, bool add, int n, int depth)
{
    int ldy = round_up(n);
    for (int d = 0; d < depth; d += ROWS)
        product(m->state + d * t->ld, t->ld, add, (struct left){m->yt + d * ldy, ldy, 1}, m->z,
                t->ld, int_min(ROWS, depth - d), n, t->ld);
}

/* out [n][ld] (+)= mask(x yT) z: row r of x sees the rows up to r of y and z or, with `back`, those
 * from r on. Blocks of p that are masked as a whole are not computed. */
static void within_chunk(struct panels *m, const struct tile *t, bool add, int n, int depth,
                         bool back)
{
    int ldx = round_up(depth), ldp = round_up(n);
    for (int r = 0; r < n; r += ROWS) {
        int rows = int_min(ROWS, n - r);
        int from = back ? r / W * W : 0, to = back ? n : r + rows;
        float *p = m->p + r * ldp;
        product(p + from, ldp, false, (struct left){m->x + r * ldx, ldx, 1}, m->yt + from, ldp,
                rows, depth, round_up(to) - from);
        for (int i = 0; i < rows; i++) {
            for (int c = from; c < r + i && back; c++) p[i * ldp + c] = 0.0f;
            for (int c = r + i + 1; c < to && !back; c++) p[i * ldp + c] = 0.0f;
        }
        product(m->out + r * t->ld, t->ld, add, (struct left){p + from, ldp, 1},
                m->z + from * t->ld, t->ld, rows, to - from, t->ld);
    }
}

/* ---- results ---- */

/* o = out / (phi(q) z), which is in the column behind the first tile, and lse keeps it for others.
 */
static void store_output(const struct job *j, int head, int i, int n, const struct tile *t,
                         struct panels *m)
{
    int row = j->q0 + i;
    for (int r = 0; r < n; r++) {
        float *sum = mat_at(j->a->lse, row + r, head);
        if (t->one) *sum = m->out[r * t->ld + t->cols];
        m->scale[r] = inverse(*sum);
    }
    scale_rows(m->out, t->ld, n, m->scale);
    store_rows(j->a->o, row, head * j->dv + t->col, m->out, t->ld, n, t->cols, 1.0f);
}

INLINE void times_slope_as(float *out, int ld, const struct source *s, int n, int width,
                           enum type t)
{
    for (int r = 0; r < n; r++, out += ld) {
        const char *x = source_row(s, r);
        for (int c = 0; c < width; c += W)
            store(out + c, load(out + c) * phi_slope(load_edge(x, c, width, t)));
    }
}

/* The gradient of q or k from that of phi(q) or phi(k), in rows [i, i + n) of d. */
static void store_gradient(const struct job *j, struct mat d, enum factor f, int head, int i, int n,
                           const struct tile *t, struct panels *m)
{
    struct source s = factor_rows(j, f, head, i, t->col);
    if (is_phi(f) && s.m.type == TYPE_BF16)
        times_slope_as(m->out, t->ld, &s, n, t->cols, TYPE_BF16);
    else if (is_phi(f))
        times_slope_as(m->out, t->ld, &s, n, t->cols, TYPE_F32);
    store_rows(d, s.row, s.col, m->out, t->ld, n, t->cols, 1.0f);
}

/* ---- sweeps ---- */

/* One row of the table above; result: whose gradient is computed, of which z has as many columns */
struct sweep {
    enum factor x, y, z, result;
    bool forward; /* not a gradient but the output */
    struct mat d; /* the gradient */
};

static void store_result(const struct job *j, const struct sweep *s, int head, int i, int n,
                         const struct tile *t, struct panels *m)
{
    if (s->forward)
        store_output(j, head, i, n, t, m);
    else
        store_gradient(j, s->d, s->result, head, i, n, t, m);
}

/* The heads of a factor: all that share the keys, or one pass where the factor is of keys. */
static int first_head(const struct job *j)
{
    return j->kv_head * attention_shared(j->a);
}
static int last_head(const struct job *j, enum factor f)
{
    return first_head(j) + (of_queries(f) ? attention_shared(j->a) : 1);
}
static int positions(const struct job *j, enum factor f)
{
    return of_queries(f) ? j->nq : j->nk;
}

/* state += yT z of n positions from i on, summed over the heads in order */
static void add_chunk(const struct job *j, const struct sweep *s, const struct tile *t, bool add,
                      int i, int n, struct panels *m)
{
    for (int h = first_head(j); h < last_head(j, s->y); h++, add = true) {
        load_y(j, s->y, h, i, n, m);
        load_z(j, s->z, h, i, n, t, m);
        to_state(m, t, add, n, factor_depth(j, s->y));
    }
}

/* The results of n positions from i on that the state gives. */
static void ask_chunk(const struct job *j, const struct sweep *s, const struct tile *t, int i,
                      int n, struct panels *m)
{
    for (int h = first_head(j); h < last_head(j, s->x); h++) {
        load_x(j, s->x, h, i, n, m);
        from_state(m, t, n, factor_depth(j, s->x));
        store_result(j, s, h, i, n, t, m);
    }
}

static void sweep_whole(const struct job *j, const struct sweep *s, const struct tile *t,
                        struct panels *m)
{
    int ny = positions(j, s->y), nx = positions(j, s->x);
    memset(m->state, 0, (size_t)factor_depth(j, s->y) * t->ld * sizeof *m->state);
    for (int i = 0; i < ny; i += j->chunk)
        add_chunk(j, s, t, true, i, int_min(j->chunk, ny - i), m);
    for (int i = 0; i < nx; i += j->chunk) ask_chunk(j, s, t, i, int_min(j->chunk, nx - i), m);
}

/* A chunk under a causal mask. first: nothing is behind it, so the state is not read; last: nobody
 * will read the state */
static void causal_chunk(const struct job *j, const struct sweep *s, const struct tile *t, int i,
                         int n, bool first, bool last, struct panels *m)
{
    int depth = factor_depth(j, s->x), loaded = -1; /* the head of y and z that is loaded */
    for (int h = first_head(j); h < last_head(j, s->x); h++) {
        load_x(j, s->x, h, i, n, m);
        if (!first) from_state(m, t, n, depth);
        bool add = !first;
        for (int k = first_head(j); k < last_head(j, s->y); k++, add = true) {
            if (loaded != k) {
                load_y(j, s->y, k, i, n, m);
                load_z(j, s->z, k, i, n, t, m);
                loaded = k;
            }
            within_chunk(m, t, add, n, depth, !of_queries(s->x));
        }
        store_result(j, s, h, i, n, t, m);
    }
    if (last) return;
    if (last_head(j, s->y) - first_head(j) == 1)
        to_state(m, t, !first, n, depth);
    else
        add_chunk(j, s, t, !first, i, n, m);
}

static void sweep_causal(const struct job *j, const struct sweep *s, const struct tile *t,
                         struct panels *m)
{
    int chunks = (j->nq + j->chunk - 1) / j->chunk;
    for (int k = 0; k < chunks; k++) {
        int i = (of_queries(s->x) ? k : chunks - 1 - k) * j->chunk;
        causal_chunk(j, s, t, i, int_min(j->chunk, j->nq - i), k == 0, k == chunks - 1, m);
    }
}

static void sweep(const struct job *j, const struct sweep *s, struct panels *m)
{
    int width = factor_width(j, s->z), depth = factor_depth(j, s->x);
    for (int col = 0; col < width;) {
        struct tile t = tile_make(col, width, depth, s->forward);
        if (j->a->seqs.causal)
            sweep_causal(j, s, &t, m);
        else
            sweep_whole(j, s, &t, m);
        col += t.cols;
    }
}

static const struct sweep output = {QUERIES, KEYS, VALUES, .forward = true};

static void forward(const struct attention *a, int sentence, int kv_head, void *work)
{
    struct job j = job_make(a, sentence, kv_head);
    sweep(&j, &output, work);
}

static void backward(const struct attention *a, const struct attention_grad *g,
                     enum linear_gradient which, int sentence, int kv_head, void *work)
{
    const struct sweep gradient[LINEAR_GRADIENTS] = {
        [LINEAR_DQ] = {GRADIENTS, VALUES, KEYS, .result = QUERIES, .d = g->dq},
        [LINEAR_DK] = {VALUES, GRADIENTS, QUERIES, .result = KEYS, .d = g->dk},
        [LINEAR_DV] = {KEYS, QUERIES, GRADIENTS, .result = VALUES, .d = g->dv},
    };
    struct job j = job_make(a, sentence, kv_head);
    j.g = g;
    sweep(&j, &gradient[which], work);
}

/* ---- states in memory ---- */

/* S and z of this head in a row of the states. */
static float *state_at(const struct job *j, struct mat states, int row)
{
    return (float *)mat_at(states, row, 0) + (size_t)j->kv_head * j->dk * (j->dv + 1);
}

static void state_load(const struct job *j, const struct tile *t, struct mat states, int row,
                       struct panels *m)
{
    if (row < 0) {
        memset(m->state, 0, (size_t)j->dk * t->ld * sizeof *m->state);
        return;
    }
    const float *s = state_at(j, states, row), *z = s + (size_t)j->dk * j->dv;
    for (int d = 0; d < j->dk; d++) {
        float *to = m->state + d * t->ld;
        const char *from = (const char *)(s + (size_t)d * j->dv + t->col);
        for (int c = 0; c < t->cols; c += W) store(to + c, load_edge(from, c, t->cols, TYPE_F32));
        if (t->one) put_behind(to, t->cols, z[d]);
    }
}

static void state_store(const struct job *j, const struct tile *t, struct mat states, int row,
                        const struct panels *m)
{
    float *s = state_at(j, states, row), *z = s + (size_t)j->dk * j->dv;
    for (int d = 0; d < j->dk; d++) {
        const float *from = m->state + d * t->ld;
        memcpy(s + (size_t)d * j->dv + t->col, from, t->cols * sizeof *s);
        if (t->one) z[d] = from[t->cols];
    }
}

static void sum(struct mat states, const struct attention *a, int sentence, int kv_head, void *work)
{
    struct job j = job_make(a, sentence, kv_head);
    for (int col = 0; col < j.dv;) {
        struct tile t = tile_make(col, j.dv, j.dk, true);
        state_load(&j, &t, states, -1, work);
        for (int i = 0; i < j.nk; i += j.chunk)
            add_chunk(&j, &output, &t, true, i, int_min(j.chunk, j.nk - i), work);
        state_store(&j, &t, states, sentence, work);
        col += t.cols;
    }
}

static void step(struct mat states, const struct attention *a, int sentence, int kv_head,
                 void *work)
{
    const struct seqs *s = &a->seqs;
    struct job j = job_make(a, sentence, kv_head);
    j.k0 = j.q0; /* the key that is added is in the row of the query */
    for (int col = 0; col < j.dv;) {
        struct tile t = tile_make(col, j.dv, j.dk, true);
        state_load(&j, &t, states, s->from[sentence], work);
        if (s->to) {
            add_chunk(&j, &output, &t, true, 0, 1, work);
            state_store(&j, &t, states, s->to[sentence], work);
        }
        for (int i = 0; i < j.nq; i += j.chunk)
            ask_chunk(&j, &output, &t, i, int_min(j.chunk, j.nq - i), work);
        col += t.cols;
    }
}

const struct linear_kernels OF_ISA(linear) = {ISA_TEXT, forward, backward, sum, step};
