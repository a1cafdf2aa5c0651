/*
 * bench_attention_cuda.cu - attention of the CUDA backend: checked against a plain version in
 * double, then timed.
 *
 *     bench_attention_cuda [check | quick] [time BATCHES]
 *
 * quick: the checks without the longest and the largest cases, for compute-sanitizer.
 * BATCHES: a line a batch, of source:target lengths. The plain version is itself held against the
 * reference backend on the smallest shapes.
 *
 * Whatever an op does not own is filled with 0xff bytes (NaN) and must still hold them afterwards;
 * what it owns starts out the same way. Every case runs twice and once sentence by sentence, and
 * must give the same bits each time (sentence by sentence: in forward).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

extern "C" {
#include "ops/bf16.h"
#include "ops/drop.h"
#include "ops/ops.h"
}
#include "ops/cuda/attention.h"

#define BANDWIDTH 4.3e12 /* of an H200, measured with a copy */

static void cuda_check(cudaError_t e, const char *what, int line)
{
    if (e == cudaSuccess) return;
    printf("line %d: %s: %s\n", line, what, cudaGetErrorString(e));
    exit(2);
}
#define CUDA(call) cuda_check(call, #call, __LINE__)

/* ---- a matrix on both sides ---- */

struct both {
    struct mat host, device;
};

static size_t bytes_of(struct mat m)
{
    return (size_t)m.rows * m.ld * type_size(m.type);
}

static struct both both_new(int rows, int cols, enum type t)
{
    struct both b = {mat_make(NULL, rows, cols, t), mat_make(NULL, rows, cols, t)};
    b.host.p = malloc(bytes_of(b.host) + 1);
    CUDA(cudaMalloc(&b.device.p, bytes_of(b.host) + 16));
    memset(b.host.p, 0xff, bytes_of(b.host));
    CUDA(cudaMemset(b.device.p, 0xff, bytes_of(b.host) + 16));
    return b;
}

static void both_free(struct both b)
{
    free(b.host.p);
    CUDA(cudaFree(b.device.p));
}

static void up(struct both b)
{
    CUDA(cudaMemcpy(b.device.p, b.host.p, bytes_of(b.host), cudaMemcpyHostToDevice));
}

static std::vector<char> down(struct both b)
{
    std::vector<char> v(bytes_of(b.host) + 1);
    CUDA(cudaMemcpy(v.data(), b.device.p, bytes_of(b.host), cudaMemcpyDeviceToHost));
    return v;
}

static void poison(struct both b)
{
    CUDA(cudaMemset(b.device.p, 0xff, bytes_of(b.host)));
}

static double get(struct mat m, int r, int c)
{
    const void *p = mat_at(m, r, c);
    return m.type == TYPE_BF16 ? bf16_to_float(*(const uint16_t *)p) : *(const float *)p;
}

static void put(struct mat m, int r, int c, double x)
{
    if (m.type == TYPE_BF16)
        *(uint16_t *)mat_at(m, r, c) = bf16_from_float((float)x);
    else
        *(float *)mat_at(m, r, c) = (float)x;
}

static void fill(struct mat m, uint64_t *seed)
{
    for (int r = 0; r < m.rows; r++)
        for (int c = 0; c < m.cols; c++) put(m, r, c, 3 * (random_unit(seed) - 0.5));
}

/* ---- the plain version, in double ---- */

struct plain {
    int dk, dv; /* columns of all heads */
    std::vector<double> q, k, v, dout, o, lse, w, dq, dkey, dval;
    std::vector<double> given; /* o as backward reads it: rounded */
    /* the parameters of a form and their gradients: of relative_k, relative_v and additive */
    std::vector<double> form[3], dform[3];
};

static std::vector<double> read_mat(struct mat m)
{
    std::vector<double> x((size_t)m.rows * m.cols);
    for (int r = 0; r < m.rows; r++)
        for (int c = 0; c < m.cols; c++) x[(size_t)r * m.cols + c] = get(m, r, c);
    return x;
}

static double dot(const double *x, const double *y, int n)
{
    double s = 0;
    for (int c = 0; c < n; c++) s += x[c] * y[c];
    return s;
}

static void plain_head(struct plain &p, const struct attention *a, int b, int h, bool backward,
                       std::mutex &one)
{
    const struct seqs *s = &a->seqs;
    int dk = p.dk / a->heads, dv = p.dv / a->heads, nq = s->q[b + 1] - s->q[b], nk = s->klen[b];
    bool relative = a->relative_k.p, additive = a->additive.p;
    double scale = additive ? 1 : 1 / sqrt(dk), slope = attention_slope(a, h);
    const double *learned = additive ? &p.form[2][(size_t)h * dk] : NULL;
    std::vector<double> w(nk + 1), keep(nk + 1), dform[3];
    for (int t = 0; t < 3; t++) dform[t].resize(p.form[t].size());
    for (int i = 0; i < nq; i++) {
        size_t row = s->q[b] + i;
        int position = nk - nq + i;
        struct key_span sees = attention_sees(a, position, nk);
        double top = -INFINITY, sum = 0;
        const double *q = &p.q[row * p.dk + h * dk], *dout = &p.dout[row * p.dv + h * dv];
        double *o = &p.o[row * p.dv + h * dv], *dq = &p.dq[row * p.dk + h * dk];
        auto key_row = [&](int j) { return (size_t)(s->at ? s->at[s->k[b] + j] : s->k[b] + j); };
        /* the vectors for the distance of key j */
        auto relative_at = [&](int j) { return (size_t)attention_relative_row(a, j - position); };
        auto sees_key = [&](int j) { return j < sees.first || (j >= sees.from && j < sees.to); };
        for (int j = 0; j < sees.to; j++) {
            const double *k = &p.k[key_row(j) * p.dk + h * dk];
            double x = additive ? 0 : dot(q, k, dk);
            for (int c = 0; additive && c < dk; c++) x += learned[c] * tanh(q[c] + k[c]);
            if (relative) x += dot(q, &p.form[0][relative_at(j) * dk], dk);
            w[j] = sees_key(j) ? x * scale - slope * abs(j - position) : -INFINITY;
            top = fmax(top, w[j]);
        }
        for (int j = 0; j < sees.to; j++) sum += w[j] = exp(w[j] - top);
        struct drop_row d = drop_row(a->drop, row * a->heads + h);
        for (int j = 0; j < sees.to; j++) {
            w[j] /= sum, keep[j] = drop_factor(d, j);
            const double *v = &p.v[key_row(j) * p.dv + h * dv];
            const double *r = relative ? &p.form[1][relative_at(j) * dv] : NULL;
            for (int c = 0; c < dv; c++) o[c] += w[j] * keep[j] * (v[c] + (r ? r[c] : 0));
            if (a->weights.p) p.w[(row * a->heads + h) * s->max_k + j] = w[j];
        }
        p.lse[row * a->heads + h] = sees.to ? top + log(sum) : -INFINITY;
        double delta = backward ? dot(dout, &p.given[row * p.dv + h * dv], dv) : 0;
        for (int j = 0; backward && j < sees.to; j++) {
            if (!sees_key(j)) continue;
            size_t key = key_row(j), r = relative ? relative_at(j) : 0;
            double dw = dot(dout, &p.v[key * p.dv + h * dv], dv);
            if (relative) dw += dot(dout, &p.form[1][r * dv], dv);
            double ds = w[j] * (dw * keep[j] - delta) * scale;
            for (int c = 0; c < dv; c++) {
                p.dval[key * p.dv + h * dv + c] += w[j] * keep[j] * dout[c];
                if (relative) dform[1][r * dv + c] += w[j] * keep[j] * dout[c];
            }
            for (int c = 0; c < dk; c++) {
                double k = p.k[key * p.dk + h * dk + c], *to = &p.dkey[key * p.dk + h * dk + c];
                if (additive) {
                    double t = tanh(q[c] + k), dt = ds * learned[c] * (1 - t * t);
                    dq[c] += dt, *to += dt, dform[2][(size_t)h * dk + c] += ds * t;
                    continue;
                }
                dq[c] += ds * (k + (relative ? p.form[0][r * dk + c] : 0));
                *to += ds * q[c];
                if (relative) dform[0][r * dk + c] += ds * q[c];
            }
        }
    }
    std::lock_guard<std::mutex> lock(one);
    for (int t = 0; t < 3; t++)
        for (size_t i = 0; i < dform[t].size(); i++) p.dform[t][i] += dform[t][i];
}

/* a's o is what forward wrote; it is read for backward alone. */
static struct plain plain_run(const struct attention *a, struct mat dout, bool backward)
{
    struct plain p;
    p.dk = a->q.cols, p.dv = a->v.cols;
    p.given = read_mat(a->o);
    p.q = read_mat(a->q), p.k = read_mat(a->k), p.v = read_mat(a->v), p.dout = read_mat(dout);
    p.o.resize((size_t)a->q.rows * p.dv), p.lse.resize((size_t)a->q.rows * a->heads);
    p.w.resize(a->weights.p ? (size_t)a->q.rows * a->heads * a->seqs.max_k : 0);
    p.dq.resize(p.q.size()), p.dkey.resize(p.k.size()), p.dval.resize(p.v.size());
    const struct mat form[3] = {a->relative_k, a->relative_v, a->additive};
    for (int t = 0; t < 3; t++) {
        if (form[t].p) p.form[t] = read_mat(form[t]);
        p.dform[t].resize(p.form[t].size());
    }
    std::mutex one;
    int tasks = a->seqs.n * a->heads, workers = std::max(1u, std::thread::hardware_concurrency());
    std::atomic<int> next(0);
    std::vector<std::thread> pool;
    for (int t = 0; t < workers; t++)
        pool.emplace_back([&] {
            for (int i; (i = next++) < tasks;)
                plain_head(p, a, i / a->heads, i % a->heads, backward, one);
        });
    for (auto &t : pool) t.join();
    return p;
}

/* ---- cases ---- */

/* The form of attention; all 0: the paper's. */
struct form {
    int window, global;
    bool alibi;
    int relative; /* rows of the tables */
    bool additive;
};

struct shape {
    const char *name;
    enum type q, k;
    int heads, dk, dv;
    std::vector<int> nq, nk;
    bool causal;
    float drop;
    int gap;      /* columns behind the last view; 8 keeps rows aligned, 5 does not */
    bool table;   /* keys through `at` */
    bool weights; /* and the weights are asked for */
    struct form form;
};

struct data {
    struct attention host, device;
    struct both in_q, in_k, o, lse, w, dout, grad_q, grad_k; /* self: q, k, v are views of in_q */
    struct mat host_dout, device_dout, host_d[3], device_d[3];
    struct both form[3], dform[3]; /* relative_k, relative_v, additive and their gradients */
    std::vector<int32_t> q, k, klen, at;
    int32_t *ints; /* the same on the device */
    std::vector<bool> query_owned, key_owned;
};

static struct mat view(struct mat m, int rows, int col, int n)
{
    return mat_rows(mat_cols(m, col, n), 0, rows);
}

/* Two query rows that nobody owns stand before the first sentence. Keys of the sentences stand in
 * reverse order with such a row between them, or, with a table, anywhere. */
static void data_init(struct data *d, const struct shape *s, uint64_t seed)
{
    int n = (int)s->nq.size(), nk = 0, dk = s->heads * s->dk, dv = s->heads * s->dv;
    struct seqs sq = {};
    sq.n = n, sq.causal = s->causal;
    d->q.assign(n + 1, 2), d->k.assign(n, 0), d->klen = s->nk, d->at.clear();
    for (int b = 0; b < n; b++) {
        d->q[b + 1] = d->q[b] + s->nq[b];
        sq.max_q = std::max(sq.max_q, s->nq[b]), sq.max_k = std::max(sq.max_k, s->nk[b]);
    }
    for (int b = n - 1; b >= 0; b--) d->k[b] = nk, nk += s->nk[b] + 1;
    if (s->table)
        for (int j = 0; j < nk; j++) d->at.push_back((int)random_below(&seed, nk));
    int nq = d->q[n] + 1;
    d->query_owned.assign(nq, false), d->key_owned.assign(nk, false);
    for (int i = 2; i < nq - 1; i++) d->query_owned[i] = true;
    for (int b = 0; b < n; b++)
        for (int j = 0; j < s->nk[b]; j++) d->key_owned[d->k[b] + j] = true;

    d->in_q = both_new(nq, dk + s->gap, s->q);
    d->in_k = both_new(nk, dk + dv + s->gap, s->k);
    d->o = both_new(nq, dv + s->gap, s->q);
    d->lse = both_new(nq, s->heads, TYPE_F32);
    d->w = both_new(nq * s->heads, std::max(1, sq.max_k), TYPE_F32);
    d->dout = both_new(nq, dv + s->gap, s->q);
    d->grad_q = both_new(nq, dk + s->gap, s->q);
    d->grad_k = both_new(nk, dk + dv + s->gap, s->k);
    const int rows[3] = {s->form.relative, s->form.relative, s->form.additive ? s->heads : 0};
    for (int t = 0; t < 3; t++) {
        d->form[t] = both_new(rows[t], t == 1 ? s->dv : s->dk, TYPE_F32);
        d->dform[t] = both_new(rows[t], t == 1 ? s->dv : s->dk, TYPE_F32);
        fill(d->form[t].host, &seed), up(d->form[t]);
    }
    std::vector<int32_t> all(d->q);
    all.insert(all.end(), d->k.begin(), d->k.end());
    all.insert(all.end(), d->klen.begin(), d->klen.end());
    all.insert(all.end(), d->at.begin(), d->at.end());
    CUDA(cudaMalloc((void **)&d->ints, all.size() * 4));
    CUDA(cudaMemcpy(d->ints, all.data(), all.size() * 4, cudaMemcpyHostToDevice));

    for (int side = 0; side < 2; side++) {
        struct attention *a = side ? &d->device : &d->host;
        auto m = [&](struct both b) { return side ? b.device : b.host; };
        *a = {};
        a->q = view(m(d->in_q), nq, 0, dk), a->o = view(m(d->o), nq, 0, dv);
        a->k = view(m(d->in_k), nk, 0, dk), a->v = view(m(d->in_k), nk, dk, dv);
        a->lse = m(d->lse);
        if (s->weights) a->weights = m(d->w);
        a->heads = s->heads, a->seqs = sq;
        a->seqs.q = side ? d->ints : d->q.data();
        a->seqs.k = side ? d->ints + n + 1 : d->k.data();
        a->seqs.klen = side ? d->ints + 2 * n + 1 : d->klen.data();
        a->seqs.at = !s->table ? NULL : side ? d->ints + 3 * n + 1 : d->at.data();
        a->drop = {s->drop, 5, 9};
        a->window = s->form.window, a->global = s->form.global, a->alibi = s->form.alibi;
        if (s->form.relative) a->relative_k = m(d->form[0]), a->relative_v = m(d->form[1]);
        if (s->form.additive) a->additive = m(d->form[2]);
        (side ? d->device_dout : d->host_dout) = view(m(d->dout), nq, 0, dv);
        struct mat *g = side ? d->device_d : d->host_d;
        g[0] = view(m(d->grad_q), nq, 0, dk);
        g[1] = view(m(d->grad_k), nk, 0, dk), g[2] = view(m(d->grad_k), nk, dk, dv);
    }
    fill(d->host.q, &seed), fill(d->host.k, &seed), fill(d->host.v, &seed);
    fill(d->host_dout, &seed);
    up(d->in_q), up(d->in_k), up(d->dout);
}

static void data_free(struct data *d)
{
    both_free(d->in_q), both_free(d->in_k), both_free(d->o), both_free(d->lse), both_free(d->w);
    both_free(d->dout), both_free(d->grad_q), both_free(d->grad_k);
    for (int t = 0; t < 3; t++) both_free(d->form[t]), both_free(d->dform[t]);
    CUDA(cudaFree(d->ints));
}

/* ---- comparing ---- */

struct verdict {
    int failures, listed;
    /* relative error of o, lse, w, dq, dk, dv, and the gradients of relative_k, relative_v and
     * additive */
    double worst[9];
};

enum { LIST = 40 };

static void fault(struct verdict *v, const struct shape *s, const char *what)
{
    v->failures++;
    if (v->listed++ < LIST)
        printf("  FAILED %s, drop %.1f, %s: %s\n", s->name, s->drop,
               s->q == TYPE_F32 ? "f32" : "bf16", what);
}

/* The columns of m, as downloaded in `got`, against want where owned; NULL: everything is. */
static void compare(struct verdict *v, const struct shape *s, const char *name, int slot,
                    struct mat m, const std::vector<double> &want, const std::vector<bool> *owned,
                    int per_row, double limit)
{
    double diff = 0, norm = 0, most = 0, top = 1e-3;
    int bad_r = -1, bad_c = -1;
    char text[200];
    for (int r = 0; r < m.rows; r++)
        for (int c = 0; c < m.cols; c++) {
            double x = get(m, r, c), y = want[(size_t)r * m.cols + c];
            if (owned && !(*owned)[r / per_row]) {
                const unsigned char *p = (const unsigned char *)mat_at(m, r, c);
                if (p[0] != 0xff || p[1] != 0xff) {
                    snprintf(text, sizeof text, "%s[%d][%d] is not its own but was written", name,
                             r, c);
                    fault(v, s, text);
                    return;
                }
                continue;
            }
            if (isfinite(y)) norm += y * y, top = fmax(top, fabs(y));
            double e = isfinite(y) ? fabs(x - y) : x == y ? 0 : INFINITY;
            if (!(e <= 1e30)) e = 1e30;
            diff += e * e;
            if (e > most) most = e, bad_r = r, bad_c = c;
        }
    double error = sqrt(diff) / fmax(sqrt(norm), 1e-3);
    v->worst[slot] = fmax(v->worst[slot], error);
    if (error <= limit && most / top <= 6 * limit) return;
    snprintf(text, sizeof text, "%s is off by %.2e (%.2e at [%d][%d]: %g, not %g)", name, error,
             most / top, bad_r, bad_c, get(m, bad_r, bad_c), want[(size_t)bad_r * m.cols + bad_c]);
    fault(v, s, text);
}

/* Columns behind the last view hold their poison. */
static void check_gap(struct verdict *v, const struct shape *s, const char *name, struct mat m)
{
    size_t row = (size_t)m.ld * type_size(m.type), gap = s->gap * type_size(m.type);
    for (int r = 0; r < m.rows; r++)
        for (size_t i = row - gap; i < row; i++)
            if (((unsigned char *)m.p)[r * row + i] != 0xff) {
                fault(v, s, name);
                return;
            }
}

struct outputs {
    std::vector<char> o, lse, w, dq, dkv, dform[3];
};

/* What backward uses of a backend: its stream and its scratch block, which is poisoned. */
static struct gpu *gpu_with(cudaStream_t stream)
{
    static struct gpu gpu;
    if (!gpu.scratch) {
        CUDA(cudaMalloc((void **)&gpu.scratch, CUDA_SCRATCH));
        CUDA(cudaMemset(gpu.scratch, 0xff, CUDA_SCRATCH));
    }
    gpu.stream = stream;
    return &gpu;
}

static struct attention_grad grads_of(const struct data *d)
{
    struct attention_grad g = {d->device_dout, d->device_d[0], d->device_d[1], d->device_d[2]};
    if (d->device.relative_k.p)
        g.drelative_k = d->dform[0].device, g.drelative_v = d->dform[1].device;
    if (d->device.additive.p) g.dadditive = d->dform[2].device;
    return g;
}

static struct outputs run_device(struct data *d, const struct shape *s, bool backward, bool single)
{
    poison(d->o), poison(d->lse), poison(d->w), poison(d->grad_q), poison(d->grad_k);
    struct attention a = d->device;
    for (int b = 0; single && b < d->device.seqs.n; b++) {
        a.seqs = d->device.seqs;
        a.seqs.n = 1, a.seqs.q += b, a.seqs.k += b, a.seqs.klen += b;
        a.seqs.max_q = s->nq[b], a.seqs.max_k = s->nk[b];
        attention_forward(&a, {0, false});
    }
    if (!single) attention_forward(&a, {0, false});
    CUDA(cudaGetLastError());
    for (struct both b : d->dform) /* gradients of parameters are added to what is there */
        CUDA(cudaMemset(b.device.p, 0, bytes_of(b.host)));
    struct attention_grad g = grads_of(d);
    if (backward) attention_backward(gpu_with(0), &d->device, &g);
    CUDA(cudaGetLastError());
    CUDA(cudaDeviceSynchronize());
    struct outputs x = {down(d->o), down(d->lse), down(d->w), down(d->grad_q), down(d->grad_k)};
    for (int t = 0; t < 3; t++) x.dform[t] = down(d->dform[t]);
    return x;
}

static void check_shape(struct verdict *v, const struct shape *s)
{
    struct data d;
    bool backward = !s->table && s->q == s->k;
    data_init(&d, s, 11);
    struct outputs x = run_device(&d, s, backward, false), y = run_device(&d, s, backward, false);
    if (x.o != y.o || x.lse != y.lse) fault(v, s, "two runs of forward differ");
    if (x.dq != y.dq || x.dkv != y.dkv) fault(v, s, "two runs of backward differ");
    for (int t = 0; t < 3; t++)
        if (x.dform[t] != y.dform[t]) fault(v, s, "two runs differ in gradients of parameters");
    if (x.w != y.w) fault(v, s, "two runs differ in the weights");
    if (!s->weights) {
        struct outputs z = run_device(&d, s, false, true);
        if (x.o != z.o || x.lse != z.lse) fault(v, s, "a sentence alone has other bits");
    }
    memcpy(d.o.host.p, x.o.data(), x.o.size() - 1);
    memcpy(d.lse.host.p, x.lse.data(), x.lse.size() - 1);
    memcpy(d.w.host.p, x.w.data(), x.w.size() - 1);
    memcpy(d.grad_q.host.p, x.dq.data(), x.dq.size() - 1);
    memcpy(d.grad_k.host.p, x.dkv.data(), x.dkv.size() - 1);
    struct plain p = plain_run(&d.host, d.host_dout, backward);
    double limit = s->q == TYPE_F32 ? 1e-5 : 6e-3;
    compare(v, s, "o", 0, d.host.o, p.o, &d.query_owned, 1, limit);
    compare(v, s, "lse", 1, d.host.lse, p.lse, &d.query_owned, 1, 1e-5);
    if (s->weights) compare(v, s, "weights", 2, d.w.host, p.w, &d.query_owned, s->heads, 1e-4);
    check_gap(v, s, "o: columns behind the last were written", d.o.host);
    if (backward) {
        limit *= 2; /* the slopes are rounded on the way */
        compare(v, s, "dq", 3, d.host_d[0], p.dq, &d.query_owned, 1, limit);
        compare(v, s, "dk", 4, d.host_d[1], p.dkey, &d.key_owned, 1, limit);
        compare(v, s, "dv", 5, d.host_d[2], p.dval, &d.key_owned, 1, limit);
        check_gap(v, s, "dq: columns behind the last were written", d.grad_q.host);
        check_gap(v, s, "dk, dv: columns behind the last were written", d.grad_k.host);
        const char *name[3] = {"drelative_k", "drelative_v", "dadditive"};
        for (int t = 0; t < 3; t++) {
            memcpy(d.dform[t].host.p, x.dform[t].data(), x.dform[t].size() - 1);
            compare(v, s, name[t], 6 + t, d.dform[t].host, p.dform[t], NULL, 1, limit);
        }
    }
    data_free(&d);
}

/* The plain version against the reference backend. */
static void check_plain(struct verdict *v)
{
    struct shape s = {"plain against ref", TYPE_F32, TYPE_F32, 2, 8,     8,    {3, 0, 9, 5},
                      {3, 4, 9, 7},        true,     0.3f,     5, false, false};
    struct backend *ref;
    struct heed_error err;
    struct data d;
    if (ref_open(&ref, &err) != HEED_OK) exit(2);
    data_init(&d, &s, 3);
    ref->op->attend(ref, &d.host);
    struct plain p = plain_run(&d.host, d.host_dout, true);
    struct attention_grad g = {d.host_dout, d.host_d[0], d.host_d[1], d.host_d[2]};
    ref->op->attend_bwd(ref, &d.host, &g);
    compare(v, &s, "o", 0, d.host.o, p.o, &d.query_owned, 1, 1e-6);
    compare(v, &s, "lse", 1, d.host.lse, p.lse, &d.query_owned, 1, 1e-6);
    compare(v, &s, "dq", 3, d.host_d[0], p.dq, &d.query_owned, 1, 1e-5);
    compare(v, &s, "dk", 4, d.host_d[1], p.dkey, &d.key_owned, 1, 1e-5);
    compare(v, &s, "dv", 5, d.host_d[2], p.dval, &d.key_owned, 1, 1e-5);
    data_free(&d);
    ref->op->close(ref);
}

static int check_all(bool quick)
{
    const std::vector<int> few = {0, 1, 2, 15, 16}, some = {7, 12, 17, 31, 32, 0, 1};
    const std::vector<int> mid = {63, 64, 65, 33, 48, 1, 16}, most = {127, 128, 100, 17, 81};
    const std::vector<int> over = {127, 128, 129, 200, 15, 0, 1}, document = {1000, 65, 333};
    const std::vector<int> few2 = {3, 0, 16, 9, 12}, some2 = {9, 0, 32, 16, 30, 5, 17};
    const std::vector<int> mid2 = {50, 80, 64, 0, 15, 17, 79}, most2 = {90, 1, 128, 33, 0};
    const std::vector<int> over2 = {200, 1, 128, 129, 130, 8, 0}, document2 = {777, 1000, 64};
    const std::vector<int> beams = {4, 4, 1, 3, 16, 20}, sources = {28, 100, 1, 33, 300, 17};
    const std::vector<int> ones = {1, 1, 1, 1, 1, 0, 1, 1},
                           caches = {1, 31, 32, 33, 129, 5, 700, 0};
    const std::vector<int> tails = {3, 17, 1, 0, 40}, pasts = {20, 64, 200, 7, 41};
    std::vector<int> many16, many32; /* so many that blocks take several heads */
    for (int i = 0; i < 1200; i++) many16.push_back(1 + i % 16);
    for (int i = 0; i < 700; i++) many32.push_back(1 + i * 7 % 32);
    const enum type H = TYPE_BF16, F = TYPE_F32;
    struct group {
        const char *name;
        std::vector<int> nq, nk;
        bool causal;
    } groups[] = {
        {"self to 16", few, few, false},           {"self to 32", some, some, false},
        {"self to 65", mid, mid, false},           {"self to 128", most, most, false},
        {"self to 200", over, over, false},        {"self to 1000", document, document, false},
        {"causal to 16", few, few, true},          {"causal to 32", some, some, true},
        {"causal to 65", mid, mid, true},          {"causal to 128", most, most, true},
        {"causal to 200", over, over, true},       {"causal to 1000", document, document, true},
        {"cross to 16", few, few2, false},         {"cross to 32", some, some2, false},
        {"cross to 80", mid, mid2, false},         {"cross to 128", most, most2, false},
        {"cross to 200", over, over2, false},      {"cross to 1000", document, document2, false},
        {"causal, more keys", tails, pasts, true}, {"causal, fewer keys", pasts, tails, true},
        {"cross of beams", beams, sources, false}, {"many to 16", many16, many16, true},
        {"many to 32", many32, many32, false},
    };
    const int widths[][2] = {{8, 64}, {4, 32}, {1, 128}, {16, 64}, {2, 40}};
    struct verdict total = {};
    check_plain(&total);
    printf("%-20s %9s %9s %9s %9s %9s %9s %9s %9s %9s\n", "relative error", "o", "lse", "weights",
           "dq", "dk", "dv", "drel_k", "drel_v", "dadditive");
    auto report = [&](const char *name, struct verdict v) {
        printf("%-20s", name);
        for (double w : v.worst) printf(" %9.1e", w);
        printf("%s\n", v.failures ? "  FAILED" : "");
        total.failures += v.failures, total.listed += v.listed;
    };
    for (const struct group &g : groups) {
        struct verdict v = {};
        if (quick && (g.nq[0] > 200 || g.nq.size() > 100)) continue;
        v.listed = total.listed;
        int turn = 0;
        for (auto &w : widths)
            for (float drop : {0.0f, 0.1f, 0.5f}) {
                if ((quick || g.nq[0] > 200) && (w[0] > 8 || drop > 0.2f)) continue;
                struct shape s = {g.name, H, H, w[0], w[1], w[1], g.nq, g.nk, g.causal, drop, 8};
                s.gap = turn++ % 8 == 7 ? 5 : 8;
                check_shape(&v, &s);
            }
        v.listed -= total.listed;
        report(g.name, v);
    }
    struct verdict f32 = {}, rows = {}, pictures = {};
    for (const struct group &g : groups)
        for (auto &w : widths) {
            if (g.nq[0] > 200 || g.nq.size() > 100 || w[0] > 8) continue;
            struct shape s = {g.name, F, F, w[0], w[1], w[1], g.nq, g.nk, g.causal, 0.1f, 5};
            check_shape(&f32, &s);
            s.gap = 8;
            check_shape(&f32, &s);
        }
    struct shape odd = {"dk 24, dv 40", F, F, 3, 24, 40, mid, mid2, false, 0.3f, 5};
    check_shape(&f32, &odd);
    report("f32", f32);
    const enum type kinds[3][2] = {{H, H}, {F, H}, {F, F}};
    for (auto &t : kinds)
        for (auto &w : widths) {
            struct shape s = {"table", t[0], t[1], w[0], w[1], w[1], ones, caches, true, 0, 8};
            s.table = true;
            check_shape(&rows, &s);
            s.name = "table, many queries", s.nq = tails, s.nk = pasts, s.drop = 0.1f;
            check_shape(&rows, &s);
            s.name = "cross of beams", s.nq = beams, s.nk = sources, s.table = false;
            s.causal = false;
            check_shape(&rows, &s);
        }
    report("table, mixed types", rows);
    for (auto &t : kinds) {
        struct shape s = {"weights", t[0], t[1], 4, 64, 64, tails, pasts, true, 0.1f, 8};
        s.weights = true;
        check_shape(&pictures, &s);
        s.nq = ones, s.nk = caches, s.table = true;
        check_shape(&pictures, &s);
    }
    report("weights", pictures);
    const struct form forms[] = {
        {1},
        {5, 2},
        {40},
        {70, 9},
        {100, 0, true},
        {0, 0, true},
        {0, 0, false, 33},
        {0, 0, false, 7},
        {6, 1, true, 33},
        {70, 9, false, 65},
        {0, 0, false, 3},
        {0, 0, false, 67},
        {0, 0, false, 0, true},
        {9, 1, true, 0, true},
    };
    for (const struct form &f : forms) {
        char name[80];
        struct verdict v = {};
        snprintf(name, sizeof name, "%d,%d%s%s%s", f.window, f.global, f.alibi ? " alibi" : "",
                 f.relative ? (" rel " + std::to_string(f.relative)).c_str() : "",
                 f.additive ? " additive" : "");
        v.listed = total.listed;
        for (const struct group &g : groups) {
            bool enough = true; /* as many keys as queries */
            for (size_t b = 0; b < g.nq.size(); b++) enough = enough && g.nk[b] >= g.nq[b];
            if (!enough || (quick && (g.nq[0] > 200 || g.nq.size() > 100))) continue;
            if (f.additive && g.nq[0] > 200) continue;
            int turn = 0;
            for (auto &w : widths) {
                if (w[0] > 8 || (g.nq[0] > 200 && w[1] != 64)) continue;
                float drop = turn++ % 2 ? 0.1f : 0;
                struct shape s = {g.name, H, H, w[0], w[1], w[1], g.nq, g.nk, g.causal, drop, 8};
                s.form = f;
                check_shape(&v, &s);
                if (g.nq.size() > 100 || g.nq[0] > 100) continue;
                s.q = s.k = F;
                check_shape(&v, &s);
            }
        }
        for (auto &t : kinds) {
            struct shape s = {"table", t[0], t[1], 4, 64, 64, ones, caches, true, 0, 8};
            s.form = f, s.table = true;
            check_shape(&v, &s);
            s.name = "table, many queries", s.nq = tails, s.nk = pasts, s.drop = 0.1f;
            check_shape(&v, &s);
            s.name = "weights", s.table = false, s.weights = true;
            check_shape(&v, &s);
        }
        v.listed -= total.listed;
        report(name, v);
    }
    printf("check: %d failures\n", total.failures);
    return total.failures;
}

/* ---- timing ---- */

static __global__ void fill_random(__nv_bfloat16 *p, size_t n, uint32_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        uint32_t x = (uint32_t)i * 0x9e3779b1u ^ seed;
        x = (x ^ x >> 16) * 0x21f0aaadu, x = (x ^ x >> 15) * 0x735a2d97u, x ^= x >> 15;
        p[i] = __float2bfloat16_rn((float)(x >> 8) * (3.0f / (1 << 24)) - 1.5f);
    }
}

static struct mat device_random(int rows, int cols)
{
    struct mat m = mat_make(NULL, rows, cols, TYPE_BF16);
    static uint32_t seed = 1;
    CUDA(cudaMalloc(&m.p, bytes_of(m)));
    fill_random<<<1024, 256>>>((__nv_bfloat16 *)m.p, (size_t)rows * cols, seed++);
    return m;
}

static int32_t *device_ints(const std::vector<int32_t> &v)
{
    int32_t *p;
    CUDA(cudaMalloc((void **)&p, v.size() * 4 + 4));
    CUDA(cudaMemcpy(p, v.data(), v.size() * 4, cudaMemcpyHostToDevice));
    return p;
}

/* Microseconds of one call: the calls are captured as a graph; median of its replays. */
template <class Call> static double time_calls(int calls, Call call)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t from, to;
    std::vector<float> ms;
    CUDA(cudaStreamCreate(&stream));
    call(0, stream); /* loads the kernel, which a capture may not */
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < calls; i++) call(i, stream);
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaEventCreate(&from));
    CUDA(cudaEventCreate(&to));
    for (int i = 0; i < 12; i++) {
        float t;
        CUDA(cudaEventRecord(from, stream));
        CUDA(cudaGraphLaunch(exec, stream));
        CUDA(cudaEventRecord(to, stream));
        CUDA(cudaEventSynchronize(to));
        CUDA(cudaEventElapsedTime(&t, from, to));
        if (i >= 2) ms.push_back(t);
    }
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaEventDestroy(from));
    CUDA(cudaEventDestroy(to));
    CUDA(cudaStreamDestroy(stream));
    std::sort(ms.begin(), ms.end());
    return ms[ms.size() / 2] * 1e3 / calls;
}

/* Memory for attentions of up to `rows` rows a side, in several sets so that one call does not find
 * the last one's data in the cache. */
struct arena {
    enum { SETS = 3 };
    int rows, heads, width;
    struct mat qkv[SETS], kv[SETS], o[SETS], dout[SETS], dqkv[SETS], dkv[SETS], lse[SETS];
};

static void arena_init(struct arena *m, int rows, int heads, int width)
{
    int D = heads * width;
    *m = {};
    m->rows = rows, m->heads = heads, m->width = width;
    for (int i = 0; i < m->SETS; i++) {
        m->qkv[i] = device_random(rows, 3 * D), m->kv[i] = device_random(rows, 2 * D);
        m->o[i] = device_random(rows, D), m->dout[i] = device_random(rows, D);
        m->dqkv[i] = device_random(rows, 3 * D), m->dkv[i] = device_random(rows, 2 * D);
        m->lse[i] = mat_make(NULL, rows, heads, TYPE_F32);
        CUDA(cudaMalloc(&m->lse[i].p, bytes_of(m->lse[i])));
    }
}

static void arena_free(struct arena *m)
{
    for (int i = 0; i < m->SETS; i++)
        for (struct mat x :
             {m->qkv[i], m->kv[i], m->o[i], m->dout[i], m->dqkv[i], m->dkv[i], m->lse[i]})
            CUDA(cudaFree(x.p));
}

/* Parameters of a form or their gradients; what is in them does not matter for the time. */
static struct mat tables(int rows, int width)
{
    enum { MOST = 65 * 128 };
    static void *p;
    if (!p) {
        CUDA(cudaMalloc(&p, MOST * sizeof(float)));
        CUDA(cudaMemset(p, 0, MOST * sizeof(float)));
    }
    return mat_make(p, rows, width, TYPE_F32);
}

enum kind { ENCODER, CAUSAL, CROSS };
static const char *const kind_name[] = {"self", "causal", "cross"};

struct timing {
    double forward, backward;             /* microseconds */
    double forward_floor, backward_floor; /* at the bandwidth of a copy */
};

static struct timing time_kind(struct arena *m, enum kind kind, const std::vector<int> &nq,
                               const std::vector<int> &nk, float drop, struct form form = {})
{
    std::vector<int32_t> q(1, 0), k;
    int rows_q = 0, rows_k = 0, D = m->heads * m->width;
    struct seqs s = {};
    s.n = (int)nq.size(), s.causal = kind == CAUSAL;
    for (size_t b = 0; b < nq.size(); b++) {
        k.push_back(rows_k), rows_q += nq[b], rows_k += nk[b], q.push_back(rows_q);
        s.max_q = std::max(s.max_q, nq[b]), s.max_k = std::max(s.max_k, nk[b]);
    }
    int32_t *dev_q = device_ints(q), *dev_k = device_ints(k), *dev_n = device_ints(nk);
    s.q = dev_q, s.k = dev_k, s.klen = dev_n;
    auto at = [&](int i) {
        i %= m->SETS;
        struct attention a = {};
        a.q = mat_cols(m->qkv[i], 0, D);
        a.k = kind == CROSS ? mat_cols(m->kv[i], 0, D) : mat_cols(m->qkv[i], D, D);
        a.v = kind == CROSS ? mat_cols(m->kv[i], D, D) : mat_cols(m->qkv[i], 2 * D, D);
        a.o = m->o[i], a.lse = m->lse[i], a.heads = m->heads, a.seqs = s;
        a.drop = {drop, 7, 3};
        a.window = form.window, a.global = form.global, a.alibi = form.alibi;
        if (form.relative) a.relative_k = a.relative_v = tables(form.relative, m->width);
        if (form.additive) a.additive = tables(m->heads, m->width);
        return a;
    };
    struct timing t;
    t.forward = time_calls(2 * m->SETS, [&](int i, cudaStream_t stream) {
        struct attention a = at(i);
        attention_forward(&a, {stream, true});
    });
    t.backward = time_calls(2 * m->SETS, [&](int i, cudaStream_t stream) {
        struct attention a = at(i);
        struct mat *dqkv = &m->dqkv[i % m->SETS], *dkv = &m->dkv[i % m->SETS];
        struct mat dk = kind == CROSS ? mat_cols(*dkv, 0, D) : mat_cols(*dqkv, D, D);
        struct mat dv = kind == CROSS ? mat_cols(*dkv, D, D) : mat_cols(*dqkv, 2 * D, D);
        struct attention_grad g = {m->dout[i % m->SETS], mat_cols(*dqkv, 0, D), dk, dv};
        if (form.relative) g.drelative_k = g.drelative_v = tables(form.relative, m->width);
        if (form.additive) g.dadditive = tables(m->heads, m->width);
        attention_backward(gpu_with(stream), &a, &g);
    });
    double row = 2.0 * D, stat = 4.0 * m->heads;
    t.forward_floor = (rows_q * (2 * row + stat) + rows_k * 2 * row) / BANDWIDTH * 1e6;
    t.backward_floor = (rows_q * (4 * row + stat) + rows_k * 4 * row) / BANDWIDTH * 1e6;
    CUDA(cudaFree(dev_q));
    CUDA(cudaFree(dev_k));
    CUDA(cudaFree(dev_n));
    return t;
}

static std::vector<std::vector<std::pair<int, int>>> batches_read(const char *path)
{
    std::vector<std::vector<std::pair<int, int>>> all(1);
    FILE *f = fopen(path, "r");
    int s, t, c;
    if (!f) {
        perror(path);
        exit(2);
    }
    while (fscanf(f, "%d:%d", &s, &t) == 2) {
        all.back().push_back({s, t});
        while ((c = getc(f)) == ' ') {
        }
        if (c == '\n')
            all.emplace_back();
        else
            ungetc(c, f);
    }
    fclose(f);
    if (all.back().empty()) all.pop_back();
    return all;
}

/* The means over all batches; each batch on a line of its own when asked. */
static void time_batches(const std::vector<std::vector<std::pair<int, int>>> &batches, int heads,
                         int width, float drop, bool lines)
{
    int rows = 0;
    for (auto &b : batches) {
        int s = 0, t = 0;
        for (auto &p : b) s += p.first, t += p.second;
        rows = std::max(rows, std::max(s, t));
    }
    struct arena m;
    arena_init(&m, rows, heads, width);
    struct timing sum[3] = {};
    if (lines)
        printf("\n%d heads of %d, dropout %.1f: us forward, backward\n%9s %6s %15s %15s %15s\n",
               heads, width, drop, "sentences", "max", "self", "causal", "cross");
    for (auto &b : batches) {
        std::vector<int> src, tgt;
        for (auto &p : b) src.push_back(p.first), tgt.push_back(p.second);
        int longest = *std::max_element(tgt.begin(), tgt.end());
        if (lines) printf("%9zu %6d", b.size(), longest);
        for (int kind = 0; kind < 3; kind++) {
            struct timing t = time_kind(&m, (enum kind)kind, kind == ENCODER ? src : tgt,
                                        kind == CAUSAL ? tgt : src, drop);
            if (lines) printf(" %7.1f %7.1f", t.forward, t.backward);
            sum[kind].forward += t.forward, sum[kind].backward += t.backward;
            sum[kind].forward_floor += t.forward_floor;
            sum[kind].backward_floor += t.backward_floor;
        }
        if (lines) printf("\n");
    }
    double step = 0;
    printf("%d x %d, dropout %.1f, mean:", heads, width, drop);
    for (int kind = 0; kind < 3; kind++) {
        double n = (double)batches.size();
        struct timing t = sum[kind];
        printf(" %s %.1f us (%.2f x floor) %.1f (%.2f);", kind_name[kind], t.forward / n,
               t.forward / t.forward_floor, t.backward / n, t.backward / t.backward_floor);
        step += 6 * (t.forward + t.backward) / n;
    }
    printf(" 18 + 18: %.2f ms\n", step / 1e3);
    arena_free(&m);
}

static void time_documents(void)
{
    struct arena m;
    arena_init(&m, 16384, 8, 64);
    for (int length : {128, 256, 1024, 4096})
        for (enum kind kind : {ENCODER, CAUSAL}) {
            std::vector<int> n(16384 / length, length);
            struct timing t = time_kind(&m, kind, n, n, 0.1f);
            double pairs = 16384.0 * length * 8 * 64 * (kind == CAUSAL ? 0.5 : 1);
            printf("16384 rows of %4d, %-6s: forward %7.1f us, %5.1f TFLOP/s; backward %7.1f us, "
                   "%5.1f TFLOP/s\n",
                   length, kind_name[kind], t.forward, 4 * pairs / t.forward / 1e6, t.backward,
                   10 * pairs / t.backward / 1e6);
        }
    arena_free(&m);
}

/* The self-attentions of a step in every form, and windows of long documents. */
static void time_forms(const std::vector<std::vector<std::pair<int, int>>> &batches)
{
    const struct {
        const char *name;
        struct form form;
    } forms[] = {{"the paper's", {}},
                 {"alibi", {0, 0, true}},
                 {"window 128", {128}},
                 {"relative 33", {0, 0, false, 33}},
                 {"additive", {0, 0, false, 0, true}}};
    struct arena m;
    arena_init(&m, 32768, 8, 64);
    printf("\n8 heads of 64, dropout 0.1, us forward and backward\n");
    for (auto &f : forms) {
        double ms[2][2] = {};
        int n = 0;
        for (auto &b : batches) {
            std::vector<int> src, tgt;
            for (auto &p : b) src.push_back(p.first), tgt.push_back(p.second);
            if (++n > 3) break; /* the first batches */
            for (int causal = 0; causal < 2; causal++) {
                struct timing t = time_kind(&m, causal ? CAUSAL : ENCODER, causal ? tgt : src,
                                            causal ? tgt : src, 0.1f, f.form);
                ms[causal][0] += t.forward, ms[causal][1] += t.backward;
            }
        }
        n = n > 3 ? 3 : n;
        printf("%-12s self %8.1f %8.1f, causal %8.1f %8.1f; 6 + 6 layers: %.2f ms\n", f.name,
               ms[0][0] / n, ms[0][1] / n, ms[1][0] / n, ms[1][1] / n,
               6 * (ms[0][0] + ms[0][1] + ms[1][0] + ms[1][1]) / n / 1e3);
    }
    for (int length : {1024, 4096, 16384})
        for (int causal = 0; causal < 2; causal++) {
            std::vector<int> rows(16384 / length, length);
            struct timing t = time_kind(&m, causal ? CAUSAL : ENCODER, rows, rows, 0.1f, {128, 16});
            printf("window 128, global 16, 16384 rows of %5d%s: %8.1f %8.1f\n", length,
                   causal ? ", causal" : "", t.forward, t.backward);
        }
    arena_free(&m);
}

/* A step of decoding: self through the table, cross with 4 queries a sentence. */
static void time_decoding(void)
{
    const int heads = 8, width = 64, D = heads * width, CALLS = 60;
    struct mat cache = device_random(1024 * 256, 2 * D), qo = device_random(1024, 2 * D);
    printf("\ndecoding, us a call: rows, self with 8, 32, 128 keys; cross with 28, 100 keys\n");
    for (int rows : {1, 4, 32, 128, 1024}) {
        printf("%9d", rows);
        for (int cross = 0; cross < 2; cross++)
            for (int keys : cross ? std::vector<int>{28, 100} : std::vector<int>{8, 32, 128}) {
                int beam = cross && rows > 1 ? 4 : 1, n = rows / beam;
                std::vector<int32_t> q, k, klen, at;
                uint64_t seed = 1;
                for (int b = 0; b <= n; b++) q.push_back(b * beam);
                for (int b = 0; b < n; b++) k.push_back(b * keys), klen.push_back(keys);
                for (int i = 0; i < n * keys; i++)
                    at.push_back((int32_t)random_below(&seed, cache.rows));
                int32_t *p[4] = {device_ints(q), device_ints(k), device_ints(klen),
                                 device_ints(at)};
                struct attention a = {};
                a.q = view(qo, rows, 0, D), a.o = view(qo, rows, D, D);
                a.k = mat_cols(cache, 0, D), a.v = mat_cols(cache, D, D);
                a.heads = heads;
                a.seqs.n = n, a.seqs.q = p[0], a.seqs.k = p[1], a.seqs.klen = p[2];
                a.seqs.max_q = beam, a.seqs.max_k = 256;
                a.seqs.causal = !cross, a.seqs.at = cross ? NULL : p[3];
                double us = time_calls(CALLS, [&](int, cudaStream_t stream) {
                    attention_forward(&a, {stream, true});
                });
                printf(" %8.2f", us);
                for (int32_t *x : p) CUDA(cudaFree(x));
            }
        printf("\n");
    }
    CUDA(cudaFree(cache.p));
    CUDA(cudaFree(qo.p));
}

int main(int argc, char **argv)
{
    int failures = 0;
    bool quick = argc > 1 && !strcmp(argv[1], "quick");
    bool check = quick || (argc > 1 && !strcmp(argv[1], "check"));
    const char *batches = NULL;
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], "time")) batches = argv[i + 1];
    if (!check && !batches) {
        fprintf(stderr, "usage: cuda_attention [check | quick] [time BATCHES]\n");
        return 2;
    }
    if (check) failures = check_all(quick);
    if (batches) {
        auto all = batches_read(batches);
        time_batches(all, 8, 64, 0.1f, true);
        time_batches(all, 8, 64, 0, false);
        time_batches(all, 16, 64, 0.1f, false);
        time_batches(all, 4, 32, 0.1f, false);
        time_batches(all, 4, 128, 0.1f, false);
        time_forms(all);
        time_documents();
        time_decoding();
    }
    return failures != 0;
}
