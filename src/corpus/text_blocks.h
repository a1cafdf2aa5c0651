/*
 * text_blocks.h - where the blocks of a cut-up compressed file are, and decoding one of them.
 * Behind text.h.
 */
#ifndef HEED_CORPUS_TEXT_BLOCKS_H
#define HEED_CORPUS_TEXT_BLOCKS_H
#include "heed.h"

struct blocks;

/* Finds the blocks of the compressed file. *out is NULL where it is not cut up, or where a block
 * has more than TEXT_BLOCK_MAX bytes of text. path is for errors. */
enum heed_status blocks_open(struct blocks **out, int fd, const char *path, struct heed_error *err);
void blocks_free(struct blocks *b);

/* Bytes of the whole text. */
int64_t blocks_bytes(const struct blocks *b);
/* The block with the byte of the text at this offset, which is in the text. */
long blocks_find(const struct blocks *b, int64_t at);
/* Where the text of block i begins, and how many bytes it has. */
int64_t blocks_begin(const struct blocks *b, long i);
size_t blocks_length(const struct blocks *b, long i);
/* Decodes block i to out[blocks_length]. */
enum heed_status blocks_decode(const struct blocks *b, long i, char *out, struct heed_error *err);
/* Bytes of the file that hold block i. */
void blocks_place(const struct blocks *b, long i, int64_t *at, size_t *n);

#endif
