/*
 * attention.h - the attention kernels: the work of one thread on some heads of one sentence.
 * attention_kernels.c fills this table once per ISA, attention.c distributes the work.
 *
 * A call needs ATTEND_WORK bytes of work space, whatever the length of the sentence, and little
 * stack, because a program may give its threads small ones. The result of a query depends on its
 * own row and on the keys it sees, not on the other queries, so decoding with a KV cache gives the
 * same bits as the whole sentence at once.
 */
#ifndef HEED_OPS_CPU_ATTENTION_H
#define HEED_OPS_CPU_ATTENTION_H
#include "ops/ops.h"

/* Bytes of work space of each thread, aligned to a page. */
enum { ATTEND_WORK = 468 << 10 };

/* The parameters of the forms of attention besides the paper's, as the kernels read them: the rows
 * are padded with zeros to a multiple of TABLE_PAD columns, that is, to whole vectors. Absent where
 * the parameters are. */
enum { TABLE_PAD = 16 };
struct attend_tables {
    struct mat relative_k, relative_v;   /* [R,dk], [R,dv] */
    struct mat relative_kt, relative_vt; /* their transposes */
    struct mat additive;                 /* [H,dk] */
};

struct attend_kernels {
    const char *isa;
    /* Writes o and lse of queries [first, last) of a sentence, counted from its first query, and of
     * `heads` heads from `head` on. */
    void (*forward)(const struct attention *a, const struct attend_tables *t, int sentence,
                    int head, int heads, int first, int last, void *work);
    /* Writes dk and dv of a key/value head and dq of the heads that share it, of a whole sentence,
     * and adds to the gradients of the parameters, whose rows are padded like those of the tables.
     */
    void (*backward)(const struct attention *a, const struct attend_tables *t,
                     const struct attention_grad *g, int sentence, int kv_head, void *work);
};

extern const struct attend_kernels attend_baseline, attend_avx2, attend_avx512, attend_dotprod,
    attend_i8mm;

#endif
