/*
 * room.h - what a search has memory for, and who uses it: a run of the model, the KV cache of the
 * decoder, and the keys and values of the sources (the memory).
 *
 * The rows of the KV cache are handed out in blocks. A sentence reserves the blocks of its longest
 * output when it begins, and takes them one by one as the output grows, so a sentence that has
 * begun always gets its next block. The sources of sentences that are encoded together take
 * consecutive rows of the memory. These rows are counted in units, each with the number of
 * sentences that use it.
 */
#ifndef HEED_DECODE_ROOM_H
#define HEED_DECODE_ROOM_H
#include "model/run.h"

/* Counts who uses each of n units, from which consecutive ones are taken. */
struct units {
    int *users; /* [n] */
    int n;
};

struct room {
    struct backend *be;
    const struct parameters *p;
    int rows, source_rows; /* hypotheses of a step; source tokens of all sentences */
    int cached;            /* rows of the KV cache */
    int candidates;        /* next tokens that a step can find for a hypothesis */
    int positions;         /* of a hypothesis that have a row in the cache, at most */
    int block_rows;        /* cache rows of a block */
    struct run *run;       /* NULL: there is no room yet */
    struct cache cache;
    void *cache_memory;
    struct units memory, states; /* units of ROW_PAD rows of the memory; states (memory_place) */
    int32_t *free_block;         /* [free_blocks] */
    int free_blocks, unreserved; /* unreserved: blocks that no sentence has reserved */
};

/* What one sentence has of a room. */
struct share {
    int memory, memory_len; /* its rows of the memory */
    int state;              /* see struct memory_place */
    int32_t *block;         /* [blocks] its blocks of the cache, */
    int blocks, reserved;   /* of which it may have up to `reserved` */
};

/* Sets the sizes that do not depend on how much room there is. */
void room_init(struct room *r, struct backend *be, const struct parameters *p);
/* Makes room for so many hypotheses, source tokens and blocks of the cache, in place of the room
 * there was. */
enum heed_status room_open(struct room *r, int rows, int source_rows, int blocks,
                           struct heed_error *err);
void room_close(struct room *r);

/* Blocks of the cache that outputs of `positions` tokens of `width` hypotheses need. */
int room_blocks(const struct room *r, int width, int positions);
/* Where the keys and values of n sentences with so many source tokens can go; false: nowhere. */
bool room_place(const struct room *r, int n, int rows, struct memory_place *at);
/* Takes what a sentence needs from its start to its end: memory, state and reserved blocks of
 * `share` are set. The caller calls room_leave, on failure too. */
enum heed_status room_enter(struct room *r, struct share *share, struct heed_error *err);
void room_leave(struct room *r, struct share *share);
/* The cache row of hypothesis i at a position, where `width` hypotheses have a row each. */
int32_t room_cache_row(struct room *r, struct share *share, int position, int width, int i);

#endif
