/*
 * attention.h - multi-head attention (paper 3.2): self-attention, where queries, keys and values
 * come from the same rows, and cross-attention, where keys and values come from the memory, the
 * output of the encoder.
 */
#ifndef HEED_MODEL_ATTENTION_H
#define HEED_MODEL_ATTENTION_H
#include "model/norm.h"

/* q, k and v lie one after another in memory, and so do their biases, so that one product computes
 * all three. Biases are absent unless the configuration has them. */
struct attention_weights {
    struct mat q, k, v;                /* [H*dk,D], [KV*dk,D], [KV*dv,D] */
    struct mat q_bias, k_bias, v_bias; /* [1,..] */
    struct mat out, out_bias;          /* [D,H*dv], [1,D] */
    struct mat relative_k, relative_v; /* see ops.h; position relative, self-attention */
    struct mat additive;               /* see ops.h; attention additive */
    struct norm_weights norm;
};

struct attention_acts {
    struct mat qkv;  /* [N,H*dk+KV*(dk+dv)] self-attention: queries, keys and values side by side */
    struct mat kv;   /* [S,KV*(dk+dv)] cross-attention: keys and values of the memory */
    struct mat q;    /* [N,H*dk] cross-attention; in self-attention a view of qkv */
    struct mat k, v; /* views of qkv, or of kv */
    struct mat states; /* [sentences, ..] cross-attention of a decoding step, if it is linear: the
                        * state of each sentence's memory, see ops.h */
    struct mat o;      /* [N,H*dv] output of the heads */
    struct mat lse;    /* [N,H] see ops.h */
    struct norm_acts norm;
    struct mat y; /* [N,D] output of the sub-layer; see norm_output_layout */
};

/* The KV cache of a self-attention in translation: row i holds key and value of one position, or,
 * if attention is linear, the state of all positions of a hypothesis up to one. */
struct kv_cache {
    struct mat rows;   /* see kv_cache_rows */
    const int32_t *at; /* [N] the cache row that each new row goes to */
};

/* A matrix of n cache rows that are at p. */
struct mat kv_cache_rows(const struct heed_config *c, const struct precision *precision, void *p,
                         int n);
/* How many positions of a hypothesis have a cache row that is still needed when the last of them is
 * decoded, which is one of them. */
int kv_cache_positions(const struct heed_config *c);

/* self: of a self-attention, not a cross-attention */
void attention_walk(struct walk *k, struct attention_weights *w, const struct heed_config *c,
                    bool self);
void self_attention_layout(struct attention_acts *a, struct layout *l, int rows);
/* Everything but the keys and values of the memory. */
void cross_attention_layout(struct attention_acts *a, struct layout *l, int rows);
void memory_keys_layout(struct attention_acts *a, struct layout *l, int memory_rows, int sentences);
void attention_scratch(struct scratch *s, struct layout *l, int rows, int memory_rows);
/* Set the rows of every activation to those of a batch. */
void self_attention_bind(struct attention_acts *a, int rows);
void cross_attention_bind(struct attention_acts *a, int rows);
void memory_keys_bind(struct attention_acts *a, int memory_rows);

/* Returns the output of the sub-layer (norm.h) whose f(x) is attention(x, x, x). With a cache, the
 * new keys and values are put into it and the queries look at its rows; NULL: at the rows of x. */
struct mat self_attention(const struct pass *p, const struct attention_weights *w,
                          const struct attention_acts *a, struct mat x, const struct seqs *seqs,
                          const struct kv_cache *cache, uint32_t site);
/* Returns dx; the gradients of the weights are added to g. */
struct mat self_attention_backward(const struct pass *p, const struct attention_weights *w,
                                   const struct attention_weights *g,
                                   const struct attention_acts *a, struct mat dy, struct mat x,
                                   const struct seqs *seqs, uint32_t site);

/* Where the keys and values of a batch that is encoded go. */
struct memory_place {
    int row;   /* the first of their rows */
    int state; /* the first of the states of its sentences */
};
/* Keys and values of the memory, and states where decoding steps need them, once for a batch;
 * `wide` is a buffer for keys and values as activations, used where they are kept in a narrower
 * type. seqs: the sentences of the memory */
void memory_keys(const struct pass *p, const struct attention_weights *w,
                 const struct attention_acts *a, struct mat memory, struct mat wide,
                 const struct seqs *seqs, struct memory_place at);
/* Returns the output of the sub-layer whose f(x) is attention(x, memory, memory). */
struct mat cross_attention(const struct pass *p, const struct attention_weights *w,
                           const struct attention_acts *a, struct mat x, const struct seqs *seqs,
                           uint32_t site);
/* Returns dx; dmemory = beta * dmemory + the memory's gradient. */
struct mat cross_attention_backward(const struct pass *p, const struct attention_weights *w,
                                    const struct attention_weights *g,
                                    const struct attention_acts *a, struct mat dmemory, float beta,
                                    struct mat dy, struct mat x, struct mat memory,
                                    const struct seqs *seqs, uint32_t site);

#endif
