/*
 * safetensors.h - named tensors in a file: an 8-byte length, a JSON header, the data.
 *
 * Written through file_write (temporary name, fsync, rename), with a CRC-32 of the data in the
 * header's __metadata__. Read by mapping the file after every number in the header was checked
 * against the file.
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
enum heed_status safetensors_open(struct safetensors **out, const char *path,
                                  struct heed_error *err);
int safetensors_count(const struct safetensors *s);
const struct tensor *safetensors_at(const struct safetensors *s, int i);
/* NULL when there is none of that name. */
const struct tensor *safetensors_find(const struct safetensors *s, const char *name);
/* A tensor that was read leaves memory; it may be read again. */
void safetensors_forget(const struct safetensors *s, const struct tensor *t);
void safetensors_free(struct safetensors *s);

#endif
