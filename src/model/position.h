/*
 * position.h - what tells the model where in its sentence a token stands (paper 3.5).
 */
#ifndef HEED_MODEL_POSITION_H
#define HEED_MODEL_POSITION_H
#include "model/pass.h"
#include "model/walk.h"

/* Fills a table [rows,d] in host memory with the sines and cosines of `kind`, sinusoid or rope. */
void position_fill(void *table, enum type type, int rows, int d, enum heed_position kind);
/* Allocates and fills the table of the positions that are not learned; absent where the kind of
 * position has none. sinusoid: [max_length,D] sines and cosines. rope:
 * [max_length,d_k] cosines and sines. The caller frees table->p with the
 * backend, also after a failure. */
enum heed_status position_open(struct mat *table, struct backend *be, const struct heed_config *c,
                               enum type type, struct heed_error *err);

/* learned: the table `STACK.position.weight` of a stack. It starts like an embedding, which is
 * small beside the tokens, whose embeddings are scaled by sqrt(D): the model learns words first. */
void position_walk(struct walk *k, struct mat *learned, const struct heed_config *c,
                   const char *stack);
/* The table [max_length,D] whose rows are added to the embeddings of a stack, learned or not;
 * absent: nothing is added. */
struct mat position_added(const struct pass *p, struct mat learned);

/* rope: rotates queries and keys, which are rows at these positions, or rotates their gradients
 * back; other kinds: does nothing. */
void position_rotate(const struct pass *p, struct mat queries_keys, const int32_t *pos, bool back);

#endif
