/*
 * safetensors.h - named tensors in a file: an 8-byte length, a JSON header, the data.
 *
 * Files are written through file_write (temporary name, fsync, rename), with a CRC-32 of the data
 * in the header's __metadata__. Files are mapped, not read, and every number in the header is
 * checked against the file before a tensor is handed out.
 */
#ifndef HEED_STORE_SAFETENSORS_H
#define HEED_STORE_SAFETENSORS_H
#include "ops/ops.h"

struct tensor {
    const char *name;
    enum type type;
    int dims;         /* 1 or 2 */
    int64_t shape[2]; /* rows, cols; a vector has shape[0] only */
    const void *data; /* when read: aligned to its elements, I8 to 64 bytes */
    size_t bytes;
};

/* The name of an element type in a file, such as "BF16". */
const char *tensor_dtype(enum type type);

enum heed_status safetensors_write(const char *path, const struct tensor *t, int n,
                                   struct heed_error *err);

struct safetensors;
/* Tensors and what they point to are valid until safetensors_free. */
enum heed_status safetensors_open(struct safetensors **out, const char *path,
                                  struct heed_error *err);
int safetensors_count(const struct safetensors *s);
/* Tensors are numbered from 0, in the order of the data. */
const struct tensor *safetensors_at(const struct safetensors *s, int i);
/* NULL when there is none of that name. */
const struct tensor *safetensors_find(const struct safetensors *s, const char *name);
/* Drops the pages of a tensor from memory; reading it again loads them from the file. */
void safetensors_drop(const struct safetensors *s, const struct tensor *t);
void safetensors_free(struct safetensors *s);

#endif
