/*
 * linear_attention.h - the kernels of linear attention: the work of one thread on one key/value
 * head of one sentence and the query heads that share it. linear_attention_kernels.c fills this
 * table once per ISA, linear_attention.c distributes the work.
 *
 * Like those of attention.h, a call needs ATTEND_WORK bytes of work space, whatever the length of
 * the sentence, and little stack.
 */
#ifndef HEED_OPS_CPU_LINEAR_ATTENTION_H
#define HEED_OPS_CPU_LINEAR_ATTENTION_H
#include "ops/ops.h"

/* The three gradients, each of which is a task of its own. */
enum linear_gradient { LINEAR_DQ, LINEAR_DK, LINEAR_DV, LINEAR_GRADIENTS };

struct linear_kernels {
    const char *isa;
    /* Writes o and lse of a sentence. */
    void (*forward)(const struct attention *a, int sentence, int kv_head, void *work);
    void (*backward)(const struct attention *a, const struct attention_grad *g,
                     enum linear_gradient which, int sentence, int kv_head, void *work);
    /* One head of linear_state and of attend_state; see ops.h. */
    void (*sum)(struct mat states, const struct attention *a, int sentence, int kv_head,
                void *work);
    void (*step)(struct mat states, const struct attention *a, int sentence, int kv_head,
                 void *work);
};

extern const struct linear_kernels linear_baseline, linear_avx2, linear_avx512, linear_dotprod,
    linear_i8mm;

#endif
