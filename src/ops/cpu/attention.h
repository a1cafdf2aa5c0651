/*
 * attention.h - what one thread does to one sentence and one head; attention_kernels.c fills this
 * table once per ISA, attention.c shares the work out.
 *
 * A call needs ATTEND_WORK bytes of work space, whatever the sentence's length, and little stack:
 * threads may have as little as their creator gives them. A query's result depends on its own row
 * and on the keys it sees, not on the queries beside it, so decoding from a cache gives the bits
 * that the whole sentence at once would.
 */
#ifndef HEED_OPS_CPU_ATTENTION_H
#define HEED_OPS_CPU_ATTENTION_H
#include "ops/ops.h"

/* Bytes, for each thread, aligned to a page */
enum { ATTEND_WORK = 420 << 10 };

struct attend_grad {
    const struct attention *a;
    struct mat dq, dk, dv, dout;
};

struct attend_kernels {
    const char *isa;
    /* queries [first, last) of a sentence, counted from its start: writes their o and lse */
    void (*forward)(const struct attention *a, int sentence, int head, int first, int last,
                    void *work);
    /* a whole sentence: writes its dq, dk and dv */
    void (*backward)(const struct attend_grad *g, int sentence, int head, void *work);
};

extern const struct attend_kernels attend_baseline, attend_avx2, attend_avx512;

#endif
