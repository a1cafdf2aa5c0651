/*
 * room.c - see room.h.
 */
#include "decode/room.h"

#include <assert.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/minmax.h"
#include "decode/beam.h"
#include "model/config.h"

enum {
    BLOCK_ROWS = 16,      /* cache rows of a block, at most */
    CANDIDATES_MAX = 4096 /* most next tokens that the op topk finds on every device */
};

/* ---- units ---- */

static enum heed_status units_open(struct units *u, int n, struct heed_error *err)
{
    *u = (struct units){calloc(n + 1, sizeof *u->users), n};
    return u->users ? HEED_OK : error_memory(err, n * sizeof *u->users, "a search");
}

/* The first of n consecutive units that nobody uses; -1: there are none. */
static int units_find(const struct units *u, int n)
{
    for (int i = 0, run = 0; i < u->n; i++) {
        run = u->users[i] ? 0 : run + 1;
        if (run == n) return i + 1 - n;
    }
    return -1;
}

/* Adds `by` users to the units [first, last]. */
static void units_use(struct units *u, int first, int last, int by)
{
    for (int i = first; i <= last; i++) u->users[i] += by;
}

/* ---- memory ---- */

static int divide_up(int n, int unit)
{
    return (n + unit - 1) / unit;
}

void room_init(struct room *r, struct backend *be, const struct parameters *p)
{
    const struct heed_config *c = &p->config;
    *r = (struct room){.be = be, .p = p, .positions = kv_cache_positions(c)};
    r->block_rows = int_min(BLOCK_ROWS, r->positions);
    r->candidates =
        int_min(beam_candidates_max(c->max_length), int_min(CANDIDATES_MAX, c->vocab_size));
}

/* With one row more, for padding rows of a step. */
static enum heed_status cache_open(struct room *r, struct heed_error *err)
{
    const struct heed_config *c = &r->p->config;
    size_t rows = (size_t)r->cached + 1;
    struct mat one = kv_cache_rows(c, &r->p->precision, NULL, (int)rows);
    size_t layer = rows * one.cols * type_size(one.type);
    struct backend *be = r->be;
    enum heed_status status =
        be->op->alloc(be, &r->cache_memory, layer * c->decoder_layers, USED_IN_PART, err);
    for (int l = 0; l < c->decoder_layers && !status; l++)
        r->cache.layer[l] =
            kv_cache_rows(c, &r->p->precision, (char *)r->cache_memory + l * layer, (int)rows);
    return status;
}

/* The first block is taken first, so that on a CPU little memory is touched. */
static enum heed_status blocks_open(struct room *r, int n, struct heed_error *err)
{
    r->free_block = malloc(n * sizeof *r->free_block);
    if (!r->free_block) return error_memory(err, n * sizeof *r->free_block, "a search");
    for (int i = 0; i < n; i++) r->free_block[i] = n - 1 - i;
    r->free_blocks = r->unreserved = n;
    r->cached = n * r->block_rows;
    return HEED_OK;
}

enum heed_status room_open(struct room *r, int rows, int source_rows, int blocks,
                           struct heed_error *err)
{
    bool linear = config_linear(&r->p->config);
    room_close(r);
    enum heed_status status = blocks_open(r, blocks, err);
    r->rows = rows;
    r->source_rows = divide_up(source_rows, ROW_PAD) * ROW_PAD;
    struct run_options o = {.rows_src = r->source_rows,
                            .rows_tgt = rows,
                            .sentences = rows,
                            .candidates = r->candidates,
                            .wants = BEAM_REQUIRED,
                            .cached = r->cached};
    if (!status) status = units_open(&r->memory, r->source_rows / ROW_PAD, err);
    if (!status) status = units_open(&r->states, linear ? rows : 0, err);
    if (!status) status = cache_open(r, err);
    if (!status) status = run_open(&r->run, r->be, r->p, &o, err);
    if (status) room_close(r);
    return status;
}

void room_close(struct room *r)
{
    r->be->op->free(r->be, r->cache_memory);
    run_free(r->run);
    free(r->memory.users);
    free(r->states.users);
    free(r->free_block);
    r->cache_memory = NULL;
    r->run = NULL;
    r->memory.users = r->states.users = NULL;
    r->free_block = NULL;
}

/* ---- sentences ---- */

int room_blocks(const struct room *r, int width, int positions)
{
    return divide_up(width * int_min(positions, r->positions), r->block_rows);
}

bool room_place(const struct room *r, int n, int rows, struct memory_place *at)
{
    int unit = units_find(&r->memory, divide_up(rows, ROW_PAD));
    int state = r->states.n ? units_find(&r->states, n) : 0;
    *at = (struct memory_place){unit * ROW_PAD, state};
    return unit >= 0 && state >= 0;
}

/* by: 1 takes, -1 gives back */
static void use(struct room *r, const struct share *x, int by)
{
    int last = x->memory + x->memory_len - 1;
    units_use(&r->memory, x->memory / ROW_PAD, last / ROW_PAD, by);
    if (r->states.n) units_use(&r->states, x->state, x->state, by);
    r->unreserved -= by * x->reserved;
}

enum heed_status room_enter(struct room *r, struct share *x, struct heed_error *err)
{
    use(r, x, 1);
    assert(r->unreserved >= 0);
    x->blocks = 0;
    x->block = malloc(x->reserved * sizeof *x->block);
    return x->block ? HEED_OK : error_memory(err, x->reserved * sizeof *x->block, "a sentence");
}

void room_leave(struct room *r, struct share *x)
{
    use(r, x, -1);
    while (x->blocks) r->free_block[r->free_blocks++] = x->block[--x->blocks];
    free(x->block);
    x->block = NULL;
}

int32_t room_cache_row(struct room *r, struct share *x, int position, int width, int i)
{
    int row = position % r->positions * width + i;
    while (x->blocks <= row / r->block_rows) {
        assert(x->blocks < x->reserved);
        x->block[x->blocks++] = r->free_block[--r->free_blocks];
    }
    return x->block[row / r->block_rows] * r->block_rows + row % r->block_rows;
}
