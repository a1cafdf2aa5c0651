/*
 * pack.h - lays sentences end to end in one block of memory: makes the batches that packed.h
 * describes.
 *
 * Call order: words to size the block, begin, add for each sentence.
 */
#ifndef HEED_CORPUS_PACK_H
#define HEED_CORPUS_PACK_H
#include "base/packed.h"

#include <stddef.h>

/* How many int32_t the arrays of a batch of n sentences take. */
size_t pack_words(int n, int rows_src, int rows_tgt);
/* Makes p an empty batch over words[pack_words(...)], which it borrows. */
void pack_begin(struct packed *p, int32_t *words, int n, int rows_src, int rows_tgt);
/* Adds a sentence given as ids without marks: src_n + 1 rows of source and, where tgt is not NULL,
 * tgt_n + 1 rows of target. */
void pack_add(struct packed *p, const int32_t *src, int src_n, const int32_t *tgt, int tgt_n,
              int bos, int eos);

#endif
