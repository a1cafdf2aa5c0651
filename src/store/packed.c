/*
 * packed.c - files of weights for translation, whose matrices a backend packs into its own layout;
 * see weights.h.
 *
 * A matrix in int8 lies in the file as the CPU backend packs it (ops/panels.h), which therefore
 * uses it where the file is mapped.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "model/walk.h"
#include "ops/panels.h"
#include "store/weights.h"

/* The tensor of a file that is all matrices in int8, in the order of the walk. */
static const char PANELS[] = "panels";

/* ---- reading ---- */

/* Measures the file's panels, then fills parameters. */
struct filling {
    struct walk walk;
    struct parameters *p;
    struct safetensors *file;
    const struct tensor *panels; /* of the file, or NULL: it has matrices by name */
    size_t stored;               /* bytes of the file's panels before this tensor */
    int found;                   /* tensors of the file that were used */
    const char *path;
    enum heed_status status;
    struct heed_error *err;
};

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
static void pack_slices(struct filling *f, struct mat w, const struct tensor *t)
{
    enum { SLICE = 128 * PACK_ROWS };
    struct backend *be = f->p->be;
    float scale[SLICE];
    int8_t *q = t->type == TYPE_I8 ? malloc((size_t)SLICE * w.cols) : NULL;
    if (t->type == TYPE_I8 && !q) {
        f->status = error_memory(f->err, (size_t)SLICE * w.cols, "rows of weights");
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
        safetensors_forget(f->file, &part);
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
static void fill_panels(struct filling *f, const char *name, struct mat w)
{
    struct tensor t = *f->panels;
    t.data = (const char *)t.data + f->stored;
    f->stored += panels_bytes(w.rows, w.cols);
    if (!panels_sound(t.data, w.rows, w.cols))
        f->status =
            error_set(f->err, HEED_EFORMAT,
                      "%s: tensor %s holds a scale of %s that is not a number, or an absurd sum",
                      f->path, PANELS, name);
    else if (w.p != t.data)
        pack_slices(f, w, &t);
}

static void fill_visit(struct walk *k, const char *name, enum role role, struct mat *slot, int rows,
                       int cols)
{
    struct filling *f = (struct filling *)k;
    struct parameter want = {.dims = role_is_matrix(role) ? 2 : 1, .rows = rows, .cols = cols};
    if (f->status) return;
    if (role_is_matrix(role) && f->panels) {
        fill_panels(f, name, *slot);
        return;
    }
    const struct tensor *t = safetensors_find(f->file, name);
    bool half = t && role_is_matrix(role) && t->type == TYPE_BF16;
    f->found++;
    f->status = weights_check(t, &want, half ? TYPE_BF16 : TYPE_F32, name, f->path, f->err);
    if (f->status) return;
    if (role_is_matrix(role))
        pack_slices(f, *slot, t);
    else
        f->p->be->op->upload(f->p->be, slot->p, t->data, t->bytes);
}

static void measure_visit(struct walk *k, const char *name, enum role role, struct mat *slot,
                          int rows, int cols)
{
    (void)name, (void)slot;
    if (role_is_matrix(role)) ((struct filling *)k)->stored += panels_bytes(rows, cols);
}

static void map_visit(struct walk *k, const char *name, enum role role, struct mat *slot, int rows,
                      int cols)
{
    (void)name;
    struct filling *f = (struct filling *)k;
    if (!role_is_matrix(role)) return;
    slot->p = (char *)f->panels->data + f->stored;
    f->stored += panels_bytes(rows, cols);
}

/* Counts from the start. */
static void walk_file(struct filling *f,
                      void (*visit)(struct walk *, const char *, enum role, struct mat *, int, int))
{
    f->stored = 0;
    f->walk = (struct walk){.visit = visit};
    walk_weights(&f->walk, &f->p->w, &f->p->config);
}

static void close_file(void *file)
{
    safetensors_free(file);
}

/* Binds the matrices to the file's panels where the backend takes those as they are, to memory of
 * their own elsewhere. */
static enum heed_status place_matrices(struct filling *f)
{
    struct parameters *p = f->p;
    const struct tensor *t = f->panels;
    walk_file(f, measure_visit);
    if (t && (t->type != TYPE_I8 || t->bytes != f->stored))
        return error_set(f->err, HEED_EFORMAT,
                         "%s: tensor %s has %zu bytes%s, expected %zu of I8 by config.json",
                         f->path, PANELS, t->bytes, t->type == TYPE_I8 ? "" : " of another type",
                         f->stored);
    if (!t || !p->be->op->panels || p->precision.matrix != TYPE_PACKED_I8)
        return parameters_alloc_panels(p, f->err);
    walk_file(f, map_visit);
    p->file = f->file;
    p->file_close = close_file;
    return HEED_OK;
}

static enum heed_status fill(struct filling *f)
{
    struct backend *be = f->p->be;
    f->found = f->panels ? 1 : 0;
    walk_file(f, fill_visit);
    if (!f->status && f->found != safetensors_count(f->file))
        return error_set(f->err, HEED_EFORMAT, "%s holds %d tensors, expected %d by config.json",
                         f->path, safetensors_count(f->file), f->found);
    return f->status ? f->status : be->op->sync(be, f->err);
}

/* The packed type that loses nothing of what the file has. */
static enum type type_stored(const struct safetensors *file)
{
    const struct tensor *t = safetensors_find(file, "embed.weight");
    return safetensors_find(file, PANELS) ? TYPE_PACKED_I8
           : t && t->type == TYPE_BF16    ? TYPE_PACKED_BF16
                                          : TYPE_PACKED_F32;
}

enum heed_status weights_open_packed(struct parameters **out, struct backend *be,
                                     const struct heed_config *c, enum type type, const char *path,
                                     struct heed_error *err)
{
    if (!parameters_fit_panels(c))
        return error_set(err, HEED_EUNSUPPORTED,
                         "d_model is %d and d_ff %d, expected multiples of %d for bf16 and int8",
                         c->d_model, c->d_ff, PACK_ROWS);
    struct filling f = {.path = path, .err = err};
    enum heed_status s = safetensors_open(&f.file, path, err);
    if (s) return s;
    f.panels = safetensors_find(f.file, PANELS);
    if (type == TYPE_F32) type = type_stored(f.file);
    s = parameters_open_packed(&f.p, be, c, type, err);
    if (!s) s = place_matrices(&f);
    if (!s) s = fill(&f);
    if (!f.p || !f.p->file) safetensors_free(f.file);
    if (s)
        parameters_free(f.p);
    else
        *out = f.p;
    return s;
}

/* ---- writing ---- */

enum heed_status weights_save_packed(struct parameters *p, const char *path, struct heed_error *err)
{
    assert(p->be->op->panels && p->precision.matrix == TYPE_PACKED_I8);
    int n, count = 1;
    struct parameter *list = weights_list(p, &n, err);
    if (!list) return HEED_ENOMEM;
    struct tensor *t = calloc((size_t)n + 1, sizeof *t);
    if (!t) {
        free(list);
        return error_memory(err, (size_t)n * sizeof *t, "writing parameters");
    }
    const float *vector = p->master.p;
    t[0] = (struct tensor){.name = PANELS, .type = TYPE_I8, .dims = 1, .data = p->w.embed.table.p};
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
