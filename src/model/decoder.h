/*
 * decoder.h - the decoder stack: masked self-attention, attention over the memory, feed-forward, N
 * times (paper 3.1).
 *
 * Training sees a whole target at once; translation one position, with the keys and values of
 * earlier positions in a cache. The only difference is where self-attention finds its keys.
 */
#ifndef HEED_MODEL_DECODER_H
#define HEED_MODEL_DECODER_H
#include "model/attention.h"
#include "model/config.h"
#include "model/feed_forward.h"

/* Weights and activations of one layer. */
struct decoder_weights {
    struct attention_weights self, cross;
    struct feed_forward_weights ff;
};

struct decoder_acts {
    struct attention_acts self, cross;
    struct feed_forward_acts ff;
};

/* The KV caches of all layers in translation. */
struct cache {
    struct mat layer[LAYERS_MAX]; /* see kv_cache_rows */
};

/* Which positions the rows of the decoder look at. */
struct decoder_view {
    struct seqs self, cross;
    const struct cache *cache; /* NULL: self-attention looks at the rows themselves */
    const int32_t *cache_at;   /* [rows] where the new rows go in it */
};

/* Each of these takes all layers: w, g and a are arrays of config->decoder_layers. The walk also
 * takes NULL, when only names and shapes are wanted. */
void decoder_walk(struct walk *k, struct decoder_weights *w, const struct heed_config *c);
/* Where layers share their activations (layout.h), each has its own keys and values of the memory,
 * which every decoding step reads, and its own output if backward will compute the next layer again
 * from it. */
void decoder_layout(struct decoder_acts *a, struct layout *l, int rows, int memory_rows,
                    int sentences);
void decoder_bind(struct decoder_acts *a, const struct heed_config *c, int rows);
void decoder_bind_memory(struct decoder_acts *a, const struct heed_config *c, int memory_rows);

/* Keys and values of the memory for every layer, once for a batch; see memory_keys. */
void decoder_memory(const struct pass *p, const struct decoder_weights *w,
                    const struct decoder_acts *a, struct mat memory, struct mat wide,
                    const struct seqs *seqs, struct memory_place at);
/* x: the embedded target. Returns the rows that the output layer takes. */
struct mat decoder_forward(const struct pass *p, const struct decoder_weights *w,
                           const struct decoder_acts *a, struct mat x,
                           const struct decoder_view *v);
/* Returns the gradient of x; writes dmemory, that of the memory. */
struct mat decoder_backward(const struct pass *p, const struct decoder_weights *w,
                            const struct decoder_weights *g, const struct decoder_acts *a,
                            struct mat dmemory, struct mat dy, struct mat x, struct mat memory,
                            const struct decoder_view *v);

#endif
