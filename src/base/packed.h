/*
 * packed.h - a batch in the form that every stage uses: sentences laid end to end, without padding.
 *
 * Sentence i owns source rows [src_off[i], src_off[i+1]) and target rows [tgt_off[i],
 * tgt_off[i+1]). The source ends with the end mark. The target is stored shifted: tgt_in starts
 * with the begin mark, tgt_out ends with the end mark, both of the same length (paper 3.1).
 */
#ifndef HEED_BASE_PACKED_H
#define HEED_BASE_PACKED_H
#include <stdint.h>

struct packed {
    int n;                                     /* sentences */
    int rows_src;                              /* S */
    int rows_tgt;                              /* T */
    int max_src, max_tgt;                      /* longest sentence on each side */
    const int32_t *src, *src_pos;              /* [S] ids and positions */
    const int32_t *tgt_in, *tgt_out, *tgt_pos; /* [T] */
    const int32_t *src_off, *tgt_off;          /* [n+1] */
    const int32_t *src_len, *tgt_len;          /* [n] */
};

#endif
