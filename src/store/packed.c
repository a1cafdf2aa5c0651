/*
 * packed.c - files of weights for translation, whose matrices a backend packs into its own layout;
 * see weights.h.
 *
 * A matrix in int8 lies in the file as the CPU backend packs it (ops/panels.h), so that backend
 * uses it where the file is mapped. Queries, keys and values are multiplied as one matrix, so this
 * needs the matrices one after another in the order of the walk, as weights_save_packed writes
 * them. A file with another order is packed into memory like any other.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "model/walk.h"
#include "ops/panels.h"
#include "store/weights.h"

/* Files of older versions have one tensor of this name with all matrices in int8, in the order of
 * the walk. */
static const char ALL_MATRICES[] = "panels";

/* ---- reading ---- */

/* A walk over the parameters and the file that they are read from. */
struct reading {
    struct walk walk;
    struct parameters *p;
    struct safetensors *file;
    const struct tensor *all; /* ALL_MATRICES of an older file, or NULL */
    size_t panels;            /* bytes of the matrices before this one, as panels */
    const char *next;         /* where this matrix must lie to be used in place; NULL: anywhere */
    bool in_place;            /* whether all matrices before this one can be */
    int found;                /* tensors of the file that were used */
    const char *path;
    enum heed_status status;
    struct heed_error *err;
};

static int panel_count(int rows)
{
    return (rows + PACK_ROWS - 1) / PACK_ROWS;
}

/* A matrix as it lies in the file; false: the file does not have it. */
static bool find_matrix(const struct reading *r, const char *name, int rows, int cols,
                        struct tensor *out)
{
    if (!r->all) {
        const struct tensor *t = safetensors_find(r->file, name);
        if (t) *out = *t;
        return t;
    }
    size_t bytes = panels_bytes(rows, cols);
    if (r->panels + bytes > r->all->bytes) return false;
    *out = (struct tensor){.name = name,
                           .type = r->all->type,
                           .dims = 2,
                           .shape = {panel_count(rows), (int64_t)panel_bytes(cols)},
                           .data = (const char *)r->all->data + r->panels,
                           .bytes = bytes};
    return true;
}

/* Binds a matrix to where it lies in the file, for as long as all of them can be used in place. */
static void locate_visit(struct walk *k, const char *name, enum role role, struct mat *slot,
                         int rows, int cols)
{
    struct reading *r = (struct reading *)k;
    struct tensor t;
    if (!role_is_matrix(role)) return;
    size_t bytes = panels_bytes(rows, cols);
    r->in_place = r->in_place && find_matrix(r, name, rows, cols, &t) && t.type == TYPE_I8 &&
                  t.bytes == bytes && (!r->next || t.data == r->next);
    r->panels += bytes;
    if (!r->in_place) return;
    slot->p = (void *)t.data;
    r->next = (const char *)t.data + bytes;
}

/* Bytes of so many rows of a matrix in a file */
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

/* Copies rows to a matrix of plain f32; buffer has room for them. */
static void unpack_plain(struct backend *be, struct mat to, struct stored from, float *buffer)
{
    size_t n = (size_t)to.rows * to.cols;
    for (size_t i = 0; i < n && from.type != TYPE_F32; i++) {
        union {
            uint32_t bits;
            float value;
        } bf16 = {from.type == TYPE_BF16 ? (uint32_t)((const uint16_t *)from.v)[i] << 16 : 0};
        buffer[i] = from.type == TYPE_BF16
                        ? bf16.value
                        : (float)((const int8_t *)from.v)[i] * from.scale[i / to.cols];
    }
    be->op->upload(be, to.p, from.type == TYPE_F32 ? from.v : buffer, n * sizeof *buffer);
}

/* Packs a matrix, or copies it where it is plain, some rows at a time, so that little of the file
 * is in memory at once. */
static enum heed_status pack_slices(const struct reading *r, struct mat w, const struct tensor *t)
{
    enum { SLICE = 128 * PACK_ROWS };
    struct backend *be = r->p->be;
    bool plain = !type_packed(w.type);
    float scale[SLICE];
    size_t slice = (size_t)SLICE * w.cols;
    int8_t *q = t->type == TYPE_I8 ? malloc(slice) : NULL;
    float *buffer = plain && t->type != TYPE_F32 ? malloc(slice * sizeof *buffer) : NULL;
    if ((t->type == TYPE_I8 && !q) || (plain && t->type != TYPE_F32 && !buffer)) {
        free(q);
        free(buffer);
        return error_memory(r->err, slice * sizeof *buffer, "rows of weights");
    }
    for (int row = 0; row < w.rows; row += SLICE) {
        int n = w.rows - row < SLICE ? w.rows - row : SLICE;
        struct tensor part = *t;
        part.data = (const char *)t->data + stored_bytes(t->type, row, w.cols);
        part.bytes = stored_bytes(t->type, n, w.cols);
        struct stored from =
            q ? unpack(q, scale, part.data, n, w.cols) : (struct stored){part.data, t->type, NULL};
        size_t at =
            plain ? stored_bytes(TYPE_F32, row, w.cols) : be->op->pack_bytes(w.type, row, w.cols);
        struct mat to = mat_make((char *)w.p + at, n, w.cols, w.type);
        if (plain)
            unpack_plain(be, to, from, buffer);
        else
            be->op->pack(be, to, from);
        safetensors_drop(r->file, &part);
    }
    free(q);
    free(buffer);
    return HEED_OK;
}

/* Scales are finite, and sums such that a product with them does not overflow. Rows that only fill
 * the last panel up count as well. */
static enum heed_status check_panels(const struct tensor *t, int cols, const char *path,
                                     struct heed_error *err)
{
    const char *panel = t->data;
    int32_t most = -INT8_MIN * cols;
    for (int64_t i = 0; i < t->shape[0]; i++, panel += panel_bytes(cols))
        for (int row = 0; row < PACK_ROWS; row++) {
            float scale = panel_scales(panel, cols)[row];
            int32_t sum = panel_sums(panel, cols)[row];
            if (!isfinite(scale) || sum < -most || sum > most)
                return error_set(err, HEED_EFORMAT,
                                 "%s: row %lld of tensor %s has scale %g and sum %d, expected a "
                                 "finite scale and a sum from %d to %d",
                                 path, (long long)i * PACK_ROWS + row, t->name, (double)scale, sum,
                                 -most, most);
        }
    return HEED_OK;
}

/* Checks a matrix and packs it, unless it is used where it lies. */
static enum heed_status fill_matrix(struct reading *r, const char *name, struct mat w)
{
    struct tensor t;
    bool found = find_matrix(r, name, w.rows, w.cols, &t);
    enum type type = found && (t.type == TYPE_BF16 || t.type == TYPE_I8) ? t.type : TYPE_F32;
    struct parameter want = {.dims = 2, .rows = w.rows, .cols = w.cols};
    if (type == TYPE_I8) {
        want.rows = panel_count(w.rows);
        want.cols = (int)panel_bytes(w.cols);
    }
    r->panels += panels_bytes(w.rows, w.cols);
    if (!r->all) r->found++;
    enum heed_status s = weights_check(found ? &t : NULL, &want, type, name, r->path, r->err);
    if (!s && type == TYPE_I8) s = check_panels(&t, w.cols, r->path, r->err);
    if (!s && w.p != t.data) s = pack_slices(r, w, &t);
    return s;
}

/* A bias, a gain or a table of positions: f32 in every file. */
static enum heed_status fill_plain(struct reading *r, const char *name, struct mat v, int dims)
{
    struct parameter want = {.dims = dims, .rows = v.rows, .cols = v.cols};
    const struct tensor *t = safetensors_find(r->file, name);
    r->found++;
    enum heed_status s = weights_check(t, &want, TYPE_F32, name, r->path, r->err);
    if (!s) r->p->be->op->upload(r->p->be, v.p, t->data, t->bytes);
    return s;
}

static void fill_visit(struct walk *k, const char *name, enum role role, struct mat *slot, int rows,
                       int cols)
{
    (void)rows, (void)cols;
    struct reading *r = (struct reading *)k;
    if (r->status) return;
    r->status = role_is_matrix(role) ? fill_matrix(r, name, *slot)
                                     : fill_plain(r, name, *slot, role_is_vector(role) ? 1 : 2);
}

/* Counts from the start. */
static void walk_file(struct reading *r,
                      void (*visit)(struct walk *, const char *, enum role, struct mat *, int, int))
{
    r->panels = 0;
    r->walk = (struct walk){.visit = visit};
    walk_weights(&r->walk, &r->p->w, &r->p->config);
}

static void close_file(void *file)
{
    safetensors_free(file);
}

/* Binds the matrices to the file where the backend can use them there, to memory elsewhere. */
static enum heed_status place_matrices(struct reading *r)
{
    struct parameters *p = r->p;
    r->in_place = p->be->op->panels && p->precision.matrix == TYPE_PACKED_I8;
    walk_file(r, locate_visit);
    if (r->all && (r->all->type != TYPE_I8 || r->all->bytes != r->panels))
        return error_set(r->err, HEED_EFORMAT,
                         "%s: tensor %s is %zu bytes of %s, expected %zu of I8 by config.json",
                         r->path, ALL_MATRICES, r->all->bytes, tensor_dtype(r->all->type),
                         r->panels);
    if (!r->in_place) return parameters_alloc_panels(p, r->err);
    p->file = r->file;
    p->file_close = close_file;
    return HEED_OK;
}

static enum heed_status fill(struct reading *r)
{
    struct backend *be = r->p->be;
    r->found = r->all ? 1 : 0;
    walk_file(r, fill_visit);
    if (!r->status && r->found != safetensors_count(r->file))
        return error_set(r->err, HEED_EFORMAT, "%s holds %d tensors, expected %d by config.json",
                         r->path, safetensors_count(r->file), r->found);
    return r->status ? r->status : be->op->sync(be, r->err);
}

/* The packed type that loses nothing of what the file has. */
static enum type type_stored(const struct safetensors *file)
{
    const struct tensor *t = safetensors_find(file, "embed.weight");
    if (!t) t = safetensors_find(file, ALL_MATRICES);
    return t && t->type == TYPE_I8     ? TYPE_PACKED_I8
           : t && t->type == TYPE_BF16 ? TYPE_PACKED_BF16
                                       : TYPE_PACKED_F32;
}

enum heed_status weights_open_packed(struct parameters **out, struct backend *be,
                                     const struct heed_config *c, enum type type, const char *path,
                                     struct heed_error *err)
{
    if (!parameters_fit_panels(c))
        return error_set(err, HEED_EUNSUPPORTED,
                         "d_model is %d and the inner width of the feed-forward is %d, expected "
                         "multiples of %d for bf16 and int8",
                         c->d_model, feed_forward_width(c), PACK_ROWS);
    struct reading r = {.path = path, .err = err};
    enum heed_status s = safetensors_open(&r.file, path, err);
    if (s) return s;
    r.all = safetensors_find(r.file, ALL_MATRICES);
    if (type == TYPE_F32) type = type_stored(r.file);
    s = parameters_open_packed(&r.p, be, c, type, err);
    if (!s) s = place_matrices(&r);
    if (!s) s = fill(&r);
    if (!r.p || !r.p->file) safetensors_free(r.file);
    if (s)
        parameters_free(r.p);
    else
        *out = r.p;
    return s;
}

enum heed_status weights_open_plain(struct parameters **out, struct backend *be,
                                    const struct heed_config *c, const char *path,
                                    struct heed_error *err)
{
    struct reading r = {.path = path, .err = err};
    enum heed_status s = safetensors_open(&r.file, path, err);
    if (s) return s;
    r.all = safetensors_find(r.file, ALL_MATRICES);
    s = parameters_open(&r.p, be, c, precision_f32, err);
    if (!s) s = fill(&r);
    safetensors_free(r.file);
    if (s)
        parameters_free(r.p);
    else
        *out = r.p;
    return s;
}

/* ---- writing ---- */

/* A walk that collects the tensors of a file: matrices before the others, so that each matrix
 * begins at a multiple of 64 bytes as the first does, because panels are a multiple of 64 bytes
 * long. */
struct writing {
    struct walk walk;
    const struct parameter *list; /* owns the names */
    struct tensor *matrix, *plain;
};

static void write_visit(struct walk *k, const char *name, enum role role, struct mat *slot,
                        int rows, int cols)
{
    (void)name;
    struct writing *w = (struct writing *)k;
    const char *stays = w->list[k->index].name;
    bool vector = role_is_vector(role);
    if (role_is_matrix(role))
        *w->matrix++ = (struct tensor){.name = stays,
                                       .type = TYPE_I8,
                                       .dims = 2,
                                       .shape = {panel_count(rows), (int64_t)panel_bytes(cols)},
                                       .data = slot->p,
                                       .bytes = panels_bytes(rows, cols)};
    else
        *w->plain++ = (struct tensor){.name = stays,
                                      .type = TYPE_F32,
                                      .dims = vector ? 1 : 2,
                                      .shape = {vector ? cols : rows, vector ? 0 : cols},
                                      .data = slot->p,
                                      .bytes = (size_t)rows * cols * sizeof(float)};
}

enum heed_status weights_save_packed(struct parameters *p, const char *path, struct heed_error *err)
{
    assert(p->be->op->panels && p->precision.matrix == TYPE_PACKED_I8);
    int n, matrices = 0;
    struct parameter *list = weights_list(p, &n, err);
    if (!list) return HEED_ENOMEM;
    struct tensor *t = calloc((size_t)n, sizeof *t);
    enum heed_status s =
        t ? HEED_OK : error_memory(err, (size_t)n * sizeof *t, "the list of tensors");
    if (!s) {
        for (int i = 0; i < n; i++) matrices += list[i].matrix;
        struct writing w = {{.visit = write_visit}, list, t, t + matrices};
        walk_weights(&w.walk, &p->w, &p->config);
        s = safetensors_write(path, t, n, err);
    }
    free(t);
    free(list);
    return s;
}
