/*
 * parameters.h - what the model learns: one flat array, named tensors inside it.
 *
 * The order of the tensors is fixed by one walk over the structure (walk.h); measuring, binding,
 * naming, initialising and storing all follow it. Matrices of products may be read from a
 * second array of another type (bf16), kept equal to the master by the optimizer; biases and norms
 * are always read from the master.
 */
#ifndef HEED_MODEL_PARAMETERS_H
#define HEED_MODEL_PARAMETERS_H
#include "model/decoder.h"
#include "model/embedding.h"
#include "model/encoder.h"

struct weights {
    struct embeddings embed;
    struct encoder_weights encoder[LAYERS_MAX];
    struct decoder_weights decoder[LAYERS_MAX];
    struct norm_weights encoder_norm, decoder_norm; /* see final_norm */
};

/* Every tensor in the order of memory and files. w may be NULL for a visitor that uses no slot. */
void walk_weights(struct walk *k, struct weights *w, const struct heed_config *c);

/* The n elements from number `at` of a flat array on are in another from number `to` on. */
struct flat_part {
    size_t at, n, to;
};

struct parameters {
    struct backend *be;
    struct heed_config config;
    struct precision precision;
    size_t n;                 /* parameters in all */
    struct mat master;        /* [1,n]; when the matrices are packed or `vector` is set, what is no
                               * matrix alone: biases, norms and tables */
    struct mat copy;          /* [1,n] of type matrix; absent when that is the master's type */
    void *panels;             /* memory of packed matrices; NULL when they lie in a file */
    struct flat_part *vector; /* [vectors] where the master has each of these; NULL: it has all */
    int vectors;
    struct mat positions; /* a table that is not learned: see position_open */
    struct weights w;
    void *file; /* the mapped file that packed matrices lie in, or NULL; closed by file_close when
                 * the parameters are freed */
    void (*file_close)(void *file);
};

enum heed_status parameters_open(struct parameters **out, struct backend *be,
                                 const struct heed_config *c, struct precision p,
                                 struct heed_error *err);
void parameters_free(struct parameters *p);
/* Parameters of which an optimizer holds the master, one rank's slice of it, where products read
 * another type than the master's: the copy is whole, and the master has the rest alone. */
enum heed_status parameters_open_shared(struct parameters **out, struct backend *be,
                                        const struct heed_config *c, struct precision p,
                                        struct heed_error *err);
/* How many elements before number `at` of the flat array the master of shared parameters has. */
size_t parameters_vectors_before(const struct parameters *p, size_t at);

/* Whether matrices of this shape can be packed. */
static inline bool parameters_fit_panels(const struct heed_config *c)
{
    return c->d_model % PACK_ROWS == 0 && feed_forward_width(c) % PACK_ROWS == 0;
}

/* Parameters for translation alone: matrices of a packed type, biases and norms in f32. The
 * matrices have no memory yet: the caller either binds each to where it lies packed already, or
 * calls parameters_alloc_panels. */
enum heed_status parameters_open_packed(struct parameters **out, struct backend *be,
                                        const struct heed_config *c, enum type type,
                                        struct heed_error *err);
/* Memory for all packed matrices, one after another in the order of the walk. */
enum heed_status parameters_alloc_panels(struct parameters *p, struct heed_error *err);
/* Elements of all tensors together. */
size_t parameters_count(const struct heed_config *c);

/* Ranges of the flat array whose gradients become final one after another in backward: span 0 are
 * the embeddings, then comes one for each encoder layer and one for each decoder layer, and the
 * last are the final norms, if any. Together they are the whole array, in its order. */
struct span {
    size_t at, n;
};
enum { SPANS_MAX = 2 * LAYERS_MAX + 2 };
/* Returns how many there are. */
int parameters_spans(const struct heed_config *c, struct span out[SPANS_MAX]);

/* Binds w to an array laid out like the master: gradients. */
void parameters_bind(struct weights *w, const struct heed_config *c, void *base, enum type type);

/* Xavier-uniform matrices, q, k and v together as one, routers a tenth of it; normal embeddings and
 * tables, each vector of a length of about 1, norms 1 and 0, biases 0. */
enum heed_status parameters_init(struct parameters *p, uint64_t seed, struct heed_error *err);
/* The same values in host memory, [n] of the master's type, malloced; NULL when out of memory. */
void *parameters_initial(struct parameters *p, uint64_t seed, struct heed_error *err);

/* Makes the copy equal to the master, when there is one and the master is whole. */
void parameters_refresh_copy(struct parameters *p);

/* The tensors in order. Returns how many there are; fills at most max. */
struct parameter {
    char name[NAME_MAX_BYTES];
    bool matrix; /* see role_is_matrix */
    int dims, rows, cols;
    size_t at; /* first element */
};
int parameters_list(const struct heed_config *c, struct parameter *list, int max);

#endif
