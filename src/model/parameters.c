/*
 * parameters.c - one walk over the structure of the model; everything about parameters follows it.
 */
#include "model/parameters.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "model/needs.h"
#include "model/position.h"

const struct precision precision_f32 = {TYPE_F32, TYPE_F32, TYPE_F32, TYPE_F32};
const struct precision precision_bf16 = {TYPE_BF16, TYPE_BF16, TYPE_F32, TYPE_BF16};
const struct precision precision_f64 = {TYPE_F64, TYPE_F64, TYPE_F64, TYPE_F64};

/* ---- the walk ---- */

void walk_weights(struct walk *k, struct weights *w, const struct heed_config *c)
{
    struct embeddings unused = {0};
    struct norm_weights no_norm;
    embeddings_walk(k, w ? &w->embed : &unused, c);
    encoder_walk(k, w ? w->encoder : NULL, c);
    decoder_walk(k, w ? w->decoder : NULL, c);
    final_norm_walk(k, w ? &w->encoder_norm : &no_norm, c, "encoder.");
    final_norm_walk(k, w ? &w->decoder_norm : &no_norm, c, "decoder.");
}

/* ---- binding ---- */

struct bind {
    struct walk walk;
    void *matrix, *vector; /* the arrays that hold the matrices, and the biases and norms */
    enum type matrix_type, vector_type;
};

static void bind_visit(struct walk *k, const char *name, enum role role, struct mat *slot, int rows,
                       int cols)
{
    (void)name;
    struct bind *b = (struct bind *)k;
    bool matrix = role_is_matrix(role);
    enum type type = matrix ? b->matrix_type : b->vector_type;
    char *base = matrix ? b->matrix : b->vector;
    *slot = mat_make(base + k->at * type_size(type), rows, cols, type);
}

void parameters_bind(struct weights *w, const struct heed_config *c, void *base, enum type type)
{
    struct bind b = {{.visit = bind_visit}, base, base, type, type};
    walk_weights(&b.walk, w, c);
}

/* ---- listing ---- */

struct listing {
    struct walk walk;
    struct parameter *list;
    int max;
};

static void list_visit(struct walk *k, const char *name, enum role role, struct mat *slot, int rows,
                       int cols)
{
    (void)slot;
    struct listing *l = (struct listing *)k;
    if (k->index >= l->max) return;
    struct parameter *p = &l->list[k->index];
    snprintf(p->name, sizeof p->name, "%s", name);
    p->matrix = role_is_matrix(role);
    p->dims = role_is_vector(role) ? 1 : 2;
    p->rows = rows;
    p->cols = cols;
    p->at = k->at;
}

int parameters_list(const struct heed_config *c, struct parameter *list, int max)
{
    struct listing l = {{.visit = list_visit}, list, max};
    walk_weights(&l.walk, NULL, c);
    return l.walk.index;
}

static void count_visit(struct walk *k, const char *name, enum role role, struct mat *slot,
                        int rows, int cols)
{
    (void)k, (void)name, (void)role, (void)slot, (void)rows, (void)cols; /* the walk counts */
}

size_t parameters_count(const struct heed_config *c)
{
    struct walk k = {.visit = count_visit};
    walk_weights(&k, NULL, c);
    return k.at;
}

/* Adds `n` spans that share the parameters between `from` and `to` equally. */
static int spans_add(struct span *out, int at, int n, size_t from, size_t to)
{
    size_t each = n ? (to - from) / (size_t)n : 0;
    for (int i = 0; i < n; i++) out[at + i] = (struct span){from + (size_t)i * each, each};
    return at + n;
}

int parameters_spans(const struct heed_config *c, struct span out[SPANS_MAX])
{
    struct walk k = {.visit = count_visit};
    struct embeddings unused = {0};
    embeddings_walk(&k, &unused, c);
    size_t embedded = k.at;
    encoder_walk(&k, NULL, c);
    size_t encoder = k.at;
    decoder_walk(&k, NULL, c);
    int n = spans_add(out, 0, 1, 0, embedded);
    n = spans_add(out, n, c->encoder_layers, embedded, encoder);
    n = spans_add(out, n, c->decoder_layers, encoder, k.at);
    return spans_add(out, n, 1, k.at, parameters_count(c));
}

/* ---- initial values ---- */

struct init {
    struct walk walk;
    const struct heed_config *config;
    uint64_t seed;
    enum type type;
    char *base;
};

/* Box and Muller's transform of two uniform numbers. */
static double normal(uint64_t *state)
{
    double u = 1 - random_unit(state), v = random_unit(state);
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

/* Rows that the bound of Xavier's uniform distribution counts. q, k and v count as the one matrix,
 * [3D,D] in the paper's form, that they are in memory. If each had a bound of its own, larger by
 * sqrt(2), attention would outweigh the residual from the start: the rows of the encoder become
 * alike, attention over them stays uniform, and the decoder never learns where to look. */
static int rows_out(const struct init *in, enum role role, int rows)
{
    return role == ROLE_PROJECTION ? config_qkv_width(in->config) : rows;
}

/* A router starts small (Fedus et al. 2021), so that its noise sends tokens to all experts until it
 * has learned better. With the whole bound some experts get nothing and others drop a half. */
static const double ROUTER_SCALE = 0.1;

static void init_visit(struct walk *k, const char *name, enum role role, struct mat *slot, int rows,
                       int cols)
{
    (void)name, (void)slot;
    struct init *in = (struct init *)k;
    uint64_t state = random_at(in->seed, 1, k->index);
    double bound = sqrt(6.0 / (rows_out(in, role, rows) + cols)), deviation = 1 / sqrt(cols);
    if (role == ROLE_ROUTER) bound *= ROUTER_SCALE;
    for (size_t i = 0; i < (size_t)rows * cols; i++) {
        double x = 0;
        if (role == ROLE_EMBEDDING || role == ROLE_TABLE) x = normal(&state) * deviation;
        if (role == ROLE_MATRIX || role == ROLE_PROJECTION || role == ROLE_ROUTER)
            x = (2 * random_unit(&state) - 1) * bound;
        if (role == ROLE_GAIN) x = 1;
        master_put(in->base, in->type, k->at + i, x);
    }
}

void parameters_refresh_copy(struct parameters *p)
{
    if (p->copy.p && !p->vector) p->be->op->cast(p->be, p->copy, p->master);
}

void *parameters_initial(struct parameters *p, uint64_t seed, struct heed_error *err)
{
    enum type type = p->precision.master;
    size_t bytes = p->n * type_size(type);
    char *host = malloc(bytes);
    struct init in = {{.visit = init_visit}, &p->config, seed, type, host};
    if (host)
        walk_weights(&in.walk, NULL, &p->config);
    else
        error_memory(err, bytes, "initial parameters");
    return host;
}

enum heed_status parameters_init(struct parameters *p, uint64_t seed, struct heed_error *err)
{
    size_t bytes = p->n * type_size(p->precision.master);
    void *host = parameters_initial(p, seed, err);
    if (!host) return HEED_ENOMEM;
    p->be->op->upload(p->be, p->master.p, host, bytes);
    parameters_refresh_copy(p);
    enum heed_status status = p->be->op->sync(p->be, err);
    free(host);
    return status;
}

/* ---- life ---- */

static enum heed_status take(struct parameters *p, struct mat *m, int rows, int cols,
                             enum type type, struct heed_error *err)
{
    *m = mat_make(NULL, rows, cols, type);
    return p->be->op->alloc(p->be, &m->p, (size_t)rows * cols * type_size(type), USED_WHOLE, err);
}

static struct parameters *parameters_new(struct backend *be, const struct heed_config *c,
                                         struct precision precision, struct heed_error *err)
{
    struct parameters *p = calloc(1, sizeof *p);
    if (!p) {
        error_memory(err, sizeof *p, "the table of parameters");
        return NULL;
    }
    p->be = be;
    p->config = *c;
    p->precision = precision;
    p->n = parameters_count(c);
    return p;
}

enum heed_status parameters_open(struct parameters **out, struct backend *be,
                                 const struct heed_config *c, struct precision precision,
                                 struct heed_error *err)
{
    enum heed_status s = needs_check(be->op, c, false, err);
    if (s) return s;
    struct parameters *p = parameters_new(be, c, precision, err);
    if (!p) return HEED_ENOMEM;
    bool copy = precision.matrix != precision.master;
    s = take(p, &p->master, 1, (int)p->n, precision.master, err);
    if (!s && copy) s = take(p, &p->copy, 1, (int)p->n, precision.matrix, err);
    if (!s) s = position_open(&p->positions, be, c, p->precision.master, err);
    if (s) {
        parameters_free(p);
        return s;
    }
    struct bind b = {{.visit = bind_visit},
                     copy ? p->copy.p : p->master.p,
                     p->master.p,
                     precision.matrix,
                     precision.master};
    walk_weights(&b.walk, &p->w, c);
    assert(b.walk.at == p->n);
    *out = p;
    return HEED_OK;
}

void parameters_free(struct parameters *p)
{
    if (!p) return;
    p->be->op->free(p->be, p->master.p);
    p->be->op->free(p->be, p->copy.p);
    p->be->op->free(p->be, p->panels);
    p->be->op->free(p->be, p->positions.p);
    free(p->vector);
    if (p->file) p->file_close(p->file);
    free(p);
}

/* ---- shared ---- */

/* Binds matrices to the copy and all else to a shorter master; notes where it has what. */
struct sharing {
    struct walk walk;
    struct parameters *p;
    size_t elements; /* of the master, before this tensor */
};

static void count_vectors(struct walk *k, const char *name, enum role role, struct mat *slot,
                          int rows, int cols)
{
    (void)name, (void)slot;
    struct sharing *b = (struct sharing *)k;
    if (role_is_matrix(role)) return;
    b->p->vectors++;
    b->elements += (size_t)rows * cols;
}

static void share_visit(struct walk *k, const char *name, enum role role, struct mat *slot,
                        int rows, int cols)
{
    (void)name;
    struct sharing *b = (struct sharing *)k;
    struct parameters *p = b->p;
    size_t n = (size_t)rows * cols;
    bool matrix = role_is_matrix(role);
    struct mat m = matrix ? p->copy : p->master;
    size_t at = matrix ? k->at : b->elements;
    *slot = mat_make((char *)m.p + at * type_size(m.type), rows, cols, m.type);
    if (matrix) return;
    p->vector[p->vectors++] = (struct flat_part){k->at, n, b->elements};
    b->elements += n;
}

enum heed_status parameters_open_shared(struct parameters **out, struct backend *be,
                                        const struct heed_config *c, struct precision precision,
                                        struct heed_error *err)
{
    assert(precision.matrix != precision.master);
    enum heed_status s = needs_check(be->op, c, false, err);
    if (s) return s;
    struct parameters *p = parameters_new(be, c, precision, err);
    if (!p) return HEED_ENOMEM;
    struct sharing count = {.walk = {.visit = count_vectors}, .p = p};
    walk_weights(&count.walk, NULL, c);
    size_t bytes = (size_t)p->vectors * sizeof *p->vector;
    p->vector = malloc(bytes);
    if (!p->vector) s = error_memory(err, bytes, "the table of parameters");
    if (!s) s = take(p, &p->master, 1, (int)count.elements, precision.master, err);
    if (!s) s = take(p, &p->copy, 1, (int)p->n, precision.matrix, err);
    if (!s) s = position_open(&p->positions, be, c, precision.master, err);
    if (s) {
        parameters_free(p);
        return s;
    }
    struct sharing bind = {.walk = {.visit = share_visit}, .p = p};
    p->vectors = 0;
    walk_weights(&bind.walk, &p->w, c);
    *out = p;
    return HEED_OK;
}

size_t parameters_vectors_before(const struct parameters *p, size_t at)
{
    size_t n = 0;
    for (int i = 0; i < p->vectors && p->vector[i].at < at; i++) {
        const struct flat_part *v = &p->vector[i];
        n += at - v->at < v->n ? at - v->at : v->n;
    }
    return n;
}

/* ---- packed ---- */

/* Binds packed matrices and vectors to an array each; what has no array is measured. */
struct packing {
    struct walk walk;
    struct backend *be;
    enum type type; /* of the matrices */
    char *matrix;
    float *vector;
    size_t matrix_bytes, vectors; /* before this tensor: bytes of matrices, elements of vectors */
};

static void packing_visit(struct walk *k, const char *name, enum role role, struct mat *slot,
                          int rows, int cols)
{
    (void)name;
    struct packing *b = (struct packing *)k;
    if (role_is_matrix(role)) {
        void *at = b->matrix ? b->matrix + b->matrix_bytes : NULL;
        *slot = mat_make(at, rows, cols, b->type);
        b->matrix_bytes += b->be->op->pack_bytes(b->type, rows, cols);
    } else {
        *slot = mat_make(b->vector ? b->vector + b->vectors : NULL, rows, cols, TYPE_F32);
        b->vectors += (size_t)rows * cols;
    }
}

/* Binds p->w to the arrays that p has; returns their sizes. */
static struct packing packing_bind(struct parameters *p)
{
    struct packing b = {.walk = {.visit = packing_visit},
                        .be = p->be,
                        .type = p->precision.matrix,
                        .matrix = p->panels,
                        .vector = p->master.p};
    walk_weights(&b.walk, &p->w, &p->config);
    return b;
}

enum heed_status parameters_open_packed(struct parameters **out, struct backend *be,
                                        const struct heed_config *c, enum type type,
                                        struct heed_error *err)
{
    struct precision precision = {.act = TYPE_F32,
                                  .matrix = type,
                                  .master = TYPE_F32,
                                  .keys = type == TYPE_PACKED_F32 ? TYPE_F32 : TYPE_BF16};
    enum heed_status s = needs_check(be->op, c, false, err);
    if (s) return s;
    struct parameters *p = parameters_new(be, c, precision, err);
    if (!p) return HEED_ENOMEM;
    s = take(p, &p->master, 1, (int)packing_bind(p).vectors, TYPE_F32, err);
    if (!s) s = position_open(&p->positions, be, c, p->precision.master, err);
    if (s) {
        parameters_free(p);
        return s;
    }
    packing_bind(p);
    *out = p;
    return HEED_OK;
}

enum heed_status parameters_alloc_panels(struct parameters *p, struct heed_error *err)
{
    size_t bytes = packing_bind(p).matrix_bytes;
    enum heed_status s = p->be->op->alloc(p->be, &p->panels, bytes, USED_WHOLE, err);
    if (!s) packing_bind(p);
    return s;
}
