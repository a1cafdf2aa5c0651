/*
 * weights.h - the weights of a model in a safetensors file.
 *
 * Files for training hold every tensor of the walk in the type of the master (weights.c); files for
 * translation may hold the matrices in BF16 or I8 (packed.c).
 */
#ifndef HEED_STORE_WEIGHTS_H
#define HEED_STORE_WEIGHTS_H
#include "model/parameters.h"
#include "store/safetensors.h"

/* An array laid out like the master (the master itself, a moment), and what its tensors' names
 * begin with in a file. */
struct flat {
    const char *prefix;
    struct mat m;
    const void *host; /* weights_save: the whole array in host memory, instead of m; else NULL */
    /* weights_load: the parts of the array that m has, in rising order; NULL: all of it */
    const struct flat_part *part;
    int parts;
};

/* To and from a safetensors file. A file must hold exactly the tensors of the arrays; one that
 * does not changes nothing. */
enum heed_status weights_save(struct parameters *p, const struct flat *flat, int arrays,
                              const char *path, struct heed_error *err);
enum heed_status weights_load(struct parameters *p, const struct flat *flat, int arrays,
                              const char *path, struct heed_error *err);

/* Weights for translation alone, from a file: the matrices in a packed type, biases and norms in
 * f32. The file holds each matrix in F32, in BF16, or in I8 as panels (panels.h). Type TYPE_F32
 * asks for the packed type that loses nothing of the file. */
enum heed_status weights_open_packed(struct parameters **out, struct backend *be,
                                     const struct heed_config *c, enum type type, const char *path,
                                     struct heed_error *err);
/* The weights of any such file as plain f32, so that single elements can be changed: matrices in
 * BF16 and I8 get the values that they stand for. */
enum heed_status weights_open_plain(struct parameters **out, struct backend *be,
                                    const struct heed_config *c, const char *path,
                                    struct heed_error *err);
/* Writes parameters of TYPE_PACKED_I8, of a backend that has them as panels, to such a file. */
enum heed_status weights_save_packed(struct parameters *p, const char *path,
                                     struct heed_error *err);

/* The list of tensors, malloced; *n is set. */
struct parameter *weights_list(struct parameters *p, int *n, struct heed_error *err);
/* HEED_EFORMAT naming the first tensor of the file that has another element type. */
enum heed_status weights_check_types(const struct safetensors *file, enum type type,
                                     const char *path, struct heed_error *err);
/* Whether t, called name in the file at path, is a tensor of this shape and type whose elements are
 * all finite. */
enum heed_status weights_check(const struct tensor *t, const struct parameter *want, enum type type,
                               const char *name, const char *path, struct heed_error *err);

#endif
