/*
 * attention.h - the attention of a translation that is known as ids.
 */
#ifndef HEED_DECODE_ATTENTION_H
#define HEED_DECODE_ATTENTION_H
#include "heed.h"

struct backend;
struct parameters;

/* The model whose attention is asked for. be: as for run_open */
struct attention_model {
    struct backend *be;
    const struct parameters *p;
    const struct heed_tokenizer *tokenizer;
};

/* One pass over a source, without its end mark, and its translation id[n], which ends in the end
 * mark unless it was cut. *out is freed by heed_attention_free. */
enum heed_status attention_of_ids(struct heed_attention **out, const struct attention_model *m,
                                  const struct heed_ids *src, const int32_t *id, int n,
                                  struct heed_error *err);

#endif
