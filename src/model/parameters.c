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
#include "model/safetensors.h"
#include "ops/panels.h"

const struct precision precision_f32 = {TYPE_F32, TYPE_F32, TYPE_F32, TYPE_F32};
const struct precision precision_bf16 = {TYPE_BF16, TYPE_BF16, TYPE_F32, TYPE_BF16};
const struct precision precision_f64 = {TYPE_F64, TYPE_F64, TYPE_F64, TYPE_F64};

/* ---- the walk ---- */

enum role { ROLE_EMBEDDING, ROLE_PROJECTION, ROLE_MATRIX, ROLE_BIAS, ROLE_GAIN };

static bool is_matrix(enum role role)
{
    return role <= ROLE_MATRIX;
}

/* Called for every tensor in file order; slot is its place in the weights being walked. */
struct walk {
    void (*visit)(struct walk *k, const char *name, enum role role, struct mat *slot, int rows,
                  int cols);
    char prefix[40];
    size_t at; /* elements before this tensor; walk_tensor advances it */
    int index; /* tensors before this one */
};

static void walk_tensor(struct walk *k, const char *name, enum role role, struct mat *slot,
                        int rows, int cols)
{
    char full[sizeof((struct parameter *)0)->name];
    snprintf(full, sizeof full, "%s%s", k->prefix, name);
    k->visit(k, full, role, slot, rows, cols);
    k->at += (size_t)rows * cols;
    k->index++;
}

static void walk_attention(struct walk *k, const char *prefix, struct attention_weights *w, int d)
{
    snprintf(k->prefix, sizeof k->prefix, "%s", prefix);
    walk_tensor(k, "q_proj.weight", ROLE_PROJECTION, &w->q, d, d);
    walk_tensor(k, "k_proj.weight", ROLE_PROJECTION, &w->k, d, d);
    walk_tensor(k, "v_proj.weight", ROLE_PROJECTION, &w->v, d, d);
    walk_tensor(k, "out_proj.weight", ROLE_MATRIX, &w->out, d, d);
    walk_tensor(k, "norm.weight", ROLE_GAIN, &w->norm_g, 1, d);
    walk_tensor(k, "norm.bias", ROLE_BIAS, &w->norm_b, 1, d);
}

static void walk_ff(struct walk *k, const char *prefix, struct ff_weights *w, int d, int f)
{
    snprintf(k->prefix, sizeof k->prefix, "%s", prefix);
    walk_tensor(k, "fc1.weight", ROLE_MATRIX, &w->w1, f, d);
    walk_tensor(k, "fc1.bias", ROLE_BIAS, &w->b1, 1, f);
    walk_tensor(k, "fc2.weight", ROLE_MATRIX, &w->w2, d, f);
    walk_tensor(k, "fc2.bias", ROLE_BIAS, &w->b2, 1, d);
    walk_tensor(k, "norm.weight", ROLE_GAIN, &w->norm_g, 1, d);
    walk_tensor(k, "norm.bias", ROLE_BIAS, &w->norm_b, 1, d);
}

static void walk_weights(struct walk *k, struct weights *w, const struct heed_config *c)
{
    char prefix[40];
    walk_tensor(k, "embed.weight", ROLE_EMBEDDING, &w->embed, c->vocab_size, c->d_model);
    for (int l = 0; l < c->encoder_layers; l++) {
        snprintf(prefix, sizeof prefix, "encoder.layers.%d.self_attn.", l);
        walk_attention(k, prefix, &w->encoder[l].self, c->d_model);
        snprintf(prefix, sizeof prefix, "encoder.layers.%d.ff.", l);
        walk_ff(k, prefix, &w->encoder[l].ff, c->d_model, c->d_ff);
    }
    for (int l = 0; l < c->decoder_layers; l++) {
        snprintf(prefix, sizeof prefix, "decoder.layers.%d.self_attn.", l);
        walk_attention(k, prefix, &w->decoder[l].self, c->d_model);
        snprintf(prefix, sizeof prefix, "decoder.layers.%d.cross_attn.", l);
        walk_attention(k, prefix, &w->decoder[l].cross, c->d_model);
        snprintf(prefix, sizeof prefix, "decoder.layers.%d.ff.", l);
        walk_ff(k, prefix, &w->decoder[l].ff, c->d_model, c->d_ff);
    }
}

/* ---- binding ---- */

struct bind {
    struct walk walk;
    void *matrix, *vector; /* where matrices and where biases and norms are read from */
    enum type matrix_type, vector_type;
};

static void bind_visit(struct walk *k, const char *name, enum role role, struct mat *slot, int rows,
                       int cols)
{
    (void)name;
    struct bind *b = (struct bind *)k;
    bool matrix = is_matrix(role);
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
    p->dims = is_matrix(role) ? 2 : 1;
    p->rows = rows;
    p->cols = cols;
    p->at = k->at;
}

int parameters_list(struct parameters *p, struct parameter *list, int max)
{
    struct listing l = {{.visit = list_visit}, list, max};
    walk_weights(&l.walk, &p->w, &p->config);
    return l.walk.index;
}

size_t parameters_count(const struct heed_config *c)
{
    size_t d = c->d_model, f = c->d_ff;
    size_t attention = 4 * d * d + 2 * d, ff = 2 * d * f + f + 3 * d;
    return c->vocab_size * d + c->encoder_layers * (attention + ff) +
           c->decoder_layers * (2 * attention + ff);
}

/* ---- initial values ---- */

struct init {
    struct walk walk;
    uint64_t seed;
    enum type type;
    char *base;
};

static void put(char *base, size_t i, double x, enum type type)
{
    if (type == TYPE_F64)
        ((double *)base)[i] = x;
    else
        ((float *)base)[i] = (float)x;
}

/* Box and Muller's transform of two uniform numbers. */
static double normal(uint64_t *state)
{
    double u = 1 - random_unit(state), v = random_unit(state);
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

/* q, k and v count as the one [3D,D] matrix that they are in memory. With a bound of their own,
 * larger by sqrt(2), attention outweighs the residual from the start: the rows of the encoder grow
 * alike, attention over them stays uniform, and the decoder never learns to look. */
static int rows_out(enum role role, int rows)
{
    return role == ROLE_PROJECTION ? 3 * rows : rows;
}

static void init_visit(struct walk *k, const char *name, enum role role, struct mat *slot, int rows,
                       int cols)
{
    (void)name, (void)slot;
    struct init *in = (struct init *)k;
    uint64_t state = random_at(in->seed, 1, k->index);
    double bound = sqrt(6.0 / (rows_out(role, rows) + cols)), deviation = 1 / sqrt(cols);
    for (size_t i = 0; i < (size_t)rows * cols; i++) {
        double x = 0;
        if (role == ROLE_EMBEDDING) x = normal(&state) * deviation;
        if (role == ROLE_MATRIX || role == ROLE_PROJECTION)
            x = (2 * random_unit(&state) - 1) * bound;
        if (role == ROLE_GAIN) x = 1;
        put(in->base, k->at + i, x, in->type);
    }
}

static void refresh_copy(struct parameters *p)
{
    if (p->copy.p) p->be->op->cast(p->be, p->copy, p->master);
}

enum heed_status parameters_init(struct parameters *p, uint64_t seed, struct heed_error *err)
{
    enum type type = p->precision.master;
    size_t bytes = p->n * type_size(type);
    char *host = malloc(bytes);
    if (!host) return error_memory(err, bytes, "initial parameters");
    struct init in = {{.visit = init_visit}, seed, type, host};
    walk_weights(&in.walk, &p->w, &p->config);
    p->be->op->upload(p->be, p->master.p, host, bytes);
    refresh_copy(p);
    enum heed_status status = p->be->op->sync(p->be, err);
    free(host);
    return status;
}

/* PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos of the same: paper 3.5 */
static enum heed_status fill_position(struct parameters *p, struct heed_error *err)
{
    int rows = p->config.max_length, d = p->config.d_model;
    size_t bytes = (size_t)rows * d * type_size(p->precision.master);
    char *host = malloc(bytes);
    if (!host) return error_memory(err, bytes, "the table of positions");
    for (int c = 0; c < d; c++) {
        double length = pow(10000, (double)(c & ~1) / d);
        for (int pos = 0; pos < rows; pos++) {
            double angle = pos / length;
            put(host, (size_t)pos * d + c, c & 1 ? cos(angle) : sin(angle), p->precision.master);
        }
    }
    p->be->op->upload(p->be, p->position.p, host, bytes);
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

enum heed_status parameters_open(struct parameters **out, struct backend *be,
                                 const struct heed_config *c, struct precision precision,
                                 struct heed_error *err)
{
    struct parameters *p = calloc(1, sizeof *p);
    if (!p) return error_memory(err, sizeof *p, "the table of parameters");
    p->be = be;
    p->config = *c;
    p->precision = precision;
    p->n = parameters_count(c);
    bool copy = precision.matrix != precision.master;
    enum heed_status s = take(p, &p->master, 1, (int)p->n, precision.master, err);
    if (!s && copy) s = take(p, &p->copy, 1, (int)p->n, precision.matrix, err);
    if (!s) s = take(p, &p->position, c->max_length, c->d_model, precision.master, err);
    if (!s) s = fill_position(p, err);
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
    if (!p->file) p->be->op->free(p->be, p->panels);
    safetensors_free(p->file);
    p->be->op->free(p->be, p->position.p);
    free(p);
}

/* ---- files ---- */

/* The list of tensors, malloced; *n is set. */
static struct parameter *list_all(struct parameters *p, int *n, struct heed_error *err)
{
    *n = parameters_list(p, NULL, 0);
    struct parameter *list = malloc(*n * sizeof *list);
    if (!list)
        error_memory(err, *n * sizeof *list, "the list of parameters");
    else
        parameters_list(p, list, *n);
    return list;
}

/* Names in the file: the array's prefix before the tensor's name. */
typedef char file_name[sizeof((struct parameter *)0)->name + 8];

enum heed_status parameters_save(struct parameters *p, const struct flat *flat, int arrays,
                                 const char *path, struct heed_error *err)
{
    enum heed_status status = HEED_ENOMEM;
    enum type type = p->precision.master;
    size_t size = type_size(type), bytes = p->n * size;
    int n, count = 0;
    struct parameter *list = list_all(p, &n, err);
    struct tensor *t = calloc((size_t)arrays * (list ? n : 0) + 1, sizeof *t);
    file_name *name = calloc((size_t)arrays * (list ? n : 0) + 1, sizeof *name);
    char *host = malloc(arrays * bytes);
    if (!list || !t || !name || !host) {
        error_memory(err, arrays * bytes, "writing parameters");
        goto out;
    }
    for (int a = 0; a < arrays; a++) {
        p->be->op->download(p->be, host + a * bytes, flat[a].m.p, bytes);
        for (int i = 0; i < n; i++, count++) {
            snprintf(name[count], sizeof name[count], "%s%s", flat[a].prefix, list[i].name);
            bool vector = list[i].dims == 1;
            t[count] = (struct tensor){
                .name = name[count],
                .type = type,
                .dims = list[i].dims,
                .shape = {vector ? list[i].cols : list[i].rows, vector ? 0 : list[i].cols},
                .data = host + a * bytes + list[i].at * size,
                .bytes = (size_t)list[i].rows * list[i].cols * size};
        }
    }
    status = p->be->op->sync(p->be, err);
    if (!status) status = safetensors_write(path, t, count, err);
out:
    free(host);
    free(name);
    free(t);
    free(list);
    return status;
}

/* Neither infinite nor NaN. A product may pass over a NaN in a weight (gemm.h), so it must not get
 * in. */
static bool all_finite(const struct tensor *t)
{
    size_t n = t->bytes / type_size(t->type);
    bool good = true;
    if (t->type == TYPE_F64)
        for (size_t i = 0; i < n; i++) good &= isfinite(((const double *)t->data)[i]);
    if (t->type == TYPE_F32)
        for (size_t i = 0; i < n; i++) good &= isfinite(((const float *)t->data)[i]);
    if (t->type == TYPE_BF16)
        for (size_t i = 0; i < n; i++) good &= (((const uint16_t *)t->data)[i] & 0x7f80) != 0x7f80;
    return good;
}

static enum heed_status check_tensor(const struct tensor *t, const struct parameter *want,
                                     enum type type, const char *name, const char *path,
                                     struct heed_error *err)
{
    if (!t) return error_set(err, HEED_EFORMAT, "%s: tensor %s is missing", path, name);
    if (t->type != type)
        return error_set(err, HEED_EFORMAT, "%s: tensor %s has the wrong element type", path, name);
    int64_t rows = t->dims == 2 ? t->shape[0] : 1, cols = t->shape[t->dims - 1];
    if (t->dims != want->dims || rows != want->rows || cols != want->cols)
        return error_set(err, HEED_EFORMAT,
                         "%s: tensor %s has shape [%lld, %lld], expected [%d, %d] by config.json",
                         path, name, (long long)rows, (long long)cols, want->rows, want->cols);
    if (!all_finite(t))
        return error_set(err, HEED_EFORMAT, "%s: tensor %s holds a value that is not a number",
                         path, name);
    return HEED_OK;
}

enum heed_status parameters_load(struct parameters *p, const struct flat *flat, int arrays,
                                 const char *path, struct heed_error *err)
{
    int n;
    size_t size = type_size(p->precision.master);
    struct safetensors *file = NULL;
    struct parameter *list = list_all(p, &n, err);
    if (!list) return HEED_ENOMEM;
    enum heed_status status = safetensors_open(&file, path, err);
    if (!status && safetensors_count(file) != arrays * n)
        status = error_set(err, HEED_EFORMAT, "%s holds %d tensors, expected %d by config.json",
                           path, safetensors_count(file), arrays * n);
    /* Everything is checked before anything is changed. */
    for (int pass = 0; pass < 2; pass++)
        for (int a = 0; a < arrays; a++)
            for (int i = 0; i < n && !status; i++) {
                file_name name;
                snprintf(name, sizeof name, "%s%s", flat[a].prefix, list[i].name);
                const struct tensor *t = safetensors_find(file, name);
                if (pass == 0)
                    status = check_tensor(t, &list[i], p->precision.master, name, path, err);
                else
                    p->be->op->upload(p->be, (char *)flat[a].m.p + list[i].at * size, t->data,
                                      t->bytes);
            }
    if (!status) {
        refresh_copy(p);
        status = p->be->op->sync(p->be, err);
    }
    safetensors_free(file);
    free(list);
    return status;
}

/* ---- packed ---- */

/* The tensor of a file that is all matrices in int8, in the order of the walk. */
static const char PANELS[] = "panels";

/* Measures and binds, then fills. */
struct packing {
    struct walk walk;
    struct parameters *p;
    size_t packed, stored, vectors; /* before this tensor: bytes of the backend's panels and of the
                                     * file's, and elements of vectors */
    struct safetensors *file;
    const struct tensor *panels; /* of the file, or NULL: it has matrices by name */
    int found;                   /* tensors of the file that were used */
    const char *path;
    enum heed_status status;
    struct heed_error *err;
};

/* While sizes are measured there is no memory yet: NULL stays NULL. */
static void *behind(void *base, size_t bytes)
{
    return base ? (char *)base + bytes : NULL;
}

static void packing_bind(struct walk *k, const char *name, enum role role, struct mat *slot,
                         int rows, int cols)
{
    (void)name;
    struct packing *b = (struct packing *)k;
    struct parameters *p = b->p;
    if (is_matrix(role)) {
        *slot = mat_make(behind(p->panels, b->packed), rows, cols, p->precision.matrix);
        b->packed += p->be->op->pack_bytes(p->precision.matrix, rows, cols);
        b->stored += panels_bytes(rows, cols);
    } else {
        *slot = mat_make(behind(p->master.p, b->vectors * sizeof(float)), rows, cols, TYPE_F32);
        b->vectors += (size_t)cols;
    }
}

/* Counts from the start. */
static void packing_walk(struct packing *b, void (*visit)(struct walk *, const char *, enum role,
                                                          struct mat *, int, int))
{
    b->packed = b->stored = b->vectors = 0;
    b->walk = (struct walk){.visit = visit};
    walk_weights(&b->walk, &b->p->w, &b->p->config);
}

/* Bytes of a matrix in a file */
static size_t stored_bytes(enum type type, int rows, int cols)
{
    return type == TYPE_I8 ? panels_bytes(rows, cols) : (size_t)rows * cols * type_size(type);
}

/* Rows of whole panels, one after another; q and scale have room for them. */
static struct stored unpack(int8_t *q, float *scale, const char *panels, int rows, int cols)
{
    for (int r = 0; r < rows; r++) {
        const char *panel = panels + r / PACK_ROWS * panel_bytes(cols);
        scale[r] = panel_get(q + (size_t)r * cols, panel, r % PACK_ROWS, cols);
    }
    return (struct stored){q, TYPE_I8, scale};
}

/* Packs a matrix some rows at a time, so that little of the file is in memory at once. */
static void pack_slices(struct packing *b, struct mat w, const struct tensor *t)
{
    enum { SLICE = 128 * PACK_ROWS };
    struct backend *be = b->p->be;
    float scale[SLICE];
    int8_t *q = t->type == TYPE_I8 ? malloc((size_t)SLICE * w.cols) : NULL;
    if (t->type == TYPE_I8 && !q) {
        b->status = error_memory(b->err, (size_t)SLICE * w.cols, "rows of weights");
        return;
    }
    for (int row = 0; row < w.rows; row += SLICE) {
        int n = w.rows - row < SLICE ? w.rows - row : SLICE;
        struct tensor part = *t;
        part.data = (const char *)t->data + stored_bytes(t->type, row, w.cols);
        part.bytes = stored_bytes(t->type, n, w.cols);
        struct stored from =
            q ? unpack(q, scale, part.data, n, w.cols) : (struct stored){part.data, t->type, NULL};
        struct mat to =
            mat_make((char *)w.p + be->op->pack_bytes(w.type, row, w.cols), n, w.cols, w.type);
        be->op->pack(be, to, from);
        safetensors_forget(b->file, &part);
    }
    free(q);
}

/* Scales are finite, and sums such that a product with them does not overflow. */
static bool panels_sound(const char *panels, int rows, int cols)
{
    int32_t most = -INT8_MIN * cols;
    bool good = true;
    for (int row = 0; row < rows; row += PACK_ROWS, panels += panel_bytes(cols))
        for (int i = 0; i < PACK_ROWS; i++) {
            int32_t sum = panel_sums(panels, cols)[i];
            good &= isfinite(panel_scales(panels, cols)[i]) && sum >= -most && sum <= most;
        }
    return good;
}

/* A matrix from the file's panels; there is nothing to fill where it lies in them. */
static void fill_panels(struct packing *b, const char *name, struct mat w)
{
    struct tensor t = *b->panels;
    t.data = (const char *)t.data + b->stored;
    b->stored += panels_bytes(w.rows, w.cols);
    if (!panels_sound(t.data, w.rows, w.cols))
        b->status =
            error_set(b->err, HEED_EFORMAT,
                      "%s: tensor %s holds a scale of %s that is not a number, or an absurd sum",
                      b->path, PANELS, name);
    else if (w.p != t.data)
        pack_slices(b, w, &t);
}

static void packing_fill(struct walk *k, const char *name, enum role role, struct mat *slot,
                         int rows, int cols)
{
    struct packing *b = (struct packing *)k;
    struct parameter want = {.dims = is_matrix(role) ? 2 : 1, .rows = rows, .cols = cols};
    if (b->status) return;
    if (is_matrix(role) && b->panels) {
        fill_panels(b, name, *slot);
        return;
    }
    const struct tensor *t = safetensors_find(b->file, name);
    bool half = t && is_matrix(role) && t->type == TYPE_BF16;
    b->found++;
    b->status = check_tensor(t, &want, half ? TYPE_BF16 : TYPE_F32, name, b->path, b->err);
    if (b->status) return;
    if (is_matrix(role))
        pack_slices(b, *slot, t);
    else
        b->p->be->op->upload(b->p->be, slot->p, t->data, t->bytes);
}

/* Room for the packed matrices; the file's own where the backend takes them as they are. */
static enum heed_status panels_open(struct packing *b, struct heed_error *err)
{
    struct parameters *p = b->p;
    const struct tensor *t = b->panels;
    if (t && (t->type != TYPE_I8 || t->bytes != b->stored))
        return error_set(
            err, HEED_EFORMAT, "%s: tensor %s has %zu bytes%s, expected %zu of I8 by config.json",
            b->path, PANELS, t->bytes, t->type == TYPE_I8 ? "" : " of another type", b->stored);
    if (!t || !p->be->op->panels || p->precision.matrix != TYPE_PACKED_I8)
        return p->be->op->alloc(p->be, &p->panels, b->packed, USED_WHOLE, err);
    p->panels = (void *)t->data;
    p->file = b->file;
    return HEED_OK;
}

static enum heed_status packing_run(struct packing *b, struct heed_error *err)
{
    struct parameters *p = b->p;
    b->panels = safetensors_find(b->file, PANELS);
    packing_walk(b, packing_bind);
    enum heed_status s = panels_open(b, err);
    if (!s) s = take(p, &p->master, 1, (int)b->vectors, TYPE_F32, err);
    if (!s) s = take(p, &p->position, p->config.max_length, p->config.d_model, TYPE_F32, err);
    if (!s) s = fill_position(p, err);
    if (s) return s;
    packing_walk(b, packing_bind);
    b->found = b->panels ? 1 : 0;
    packing_walk(b, packing_fill);
    if (!b->status && b->found != safetensors_count(b->file))
        b->status = error_set(err, HEED_EFORMAT, "%s holds %d tensors, expected %d by config.json",
                              b->path, safetensors_count(b->file), b->found);
    return b->status ? b->status : p->be->op->sync(p->be, err);
}

/* The packed type that loses nothing of what the file has. */
static enum type type_stored(const struct safetensors *file)
{
    const struct tensor *t = safetensors_find(file, "embed.weight");
    return safetensors_find(file, PANELS) ? TYPE_PACKED_I8
           : t && t->type == TYPE_BF16    ? TYPE_PACKED_BF16
                                          : TYPE_PACKED_F32;
}

enum heed_status parameters_open_packed(struct parameters **out, struct backend *be,
                                        const struct heed_config *c, enum type type,
                                        const char *path, struct heed_error *err)
{
    if (!parameters_fit_panels(c))
        return error_set(err, HEED_EUNSUPPORTED,
                         "d_model is %d and d_ff %d, expected multiples of %d for bf16 and int8",
                         c->d_model, c->d_ff, PACK_ROWS);
    struct safetensors *file = NULL;
    struct parameters *p = calloc(1, sizeof *p);
    if (!p) return error_memory(err, sizeof *p, "the table of parameters");
    p->be = be;
    p->config = *c;
    p->n = parameters_count(c);
    enum heed_status s = safetensors_open(&file, path, err);
    if (!s && type == TYPE_F32) type = type_stored(file);
    p->precision = (struct precision){.act = TYPE_F32,
                                      .matrix = type,
                                      .master = TYPE_F32,
                                      .keys = type == TYPE_PACKED_F32 ? TYPE_F32 : TYPE_BF16};
    struct packing b = {.p = p, .file = file, .path = path, .err = err};
    if (!s) s = packing_run(&b, err);
    if (!p->file) safetensors_free(file);
    if (s) {
        parameters_free(p);
        return s;
    }
    *out = p;
    return HEED_OK;
}

enum heed_status parameters_save_packed(struct parameters *p, const char *path,
                                        struct heed_error *err)
{
    assert(p->be->op->panels && p->precision.matrix == TYPE_PACKED_I8);
    int n, count = 1;
    struct parameter *list = list_all(p, &n, err);
    if (!list) return HEED_ENOMEM;
    struct tensor *t = calloc((size_t)n + 1, sizeof *t);
    if (!t) {
        free(list);
        return error_memory(err, (size_t)n * sizeof *t, "writing parameters");
    }
    const float *vector = p->master.p;
    t[0] = (struct tensor){.name = PANELS, .type = TYPE_I8, .dims = 1, .data = p->panels};
    for (int i = 0; i < n; i++) {
        int rows = list[i].rows, cols = list[i].cols;
        if (list[i].dims == 2) {
            t[0].bytes += panels_bytes(rows, cols);
            continue;
        }
        t[count++] =
            (struct tensor){list[i].name, TYPE_F32, 1, {cols}, vector, cols * sizeof *vector};
        vector += cols;
    }
    t[0].shape[0] = (int64_t)t[0].bytes;
    enum heed_status status = safetensors_write(path, t, count, err);
    free(t);
    free(list);
    return status;
}
