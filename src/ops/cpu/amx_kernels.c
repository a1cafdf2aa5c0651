/*
 * amx_kernels.c - kernels over the tiles of Intel's AMX: products with packed weights, and parts of
 * products of bf16 matrices. Compiled with the real instructions for the library, and once per ISA
 * with an emulation of them for the tests; see amx.h and amx_tiles.h.
 *
 * The groups of a panel (packed.h) are the rows of a tile of w as they are, and a prepared row has
 * the bytes of a row of a tile of x. So the product of a block of up to 32 rows and two panels is 4
 * tiles of sums, to which every 64 bytes along k add the products of two tiles of x and two of w:
 * each tile that is loaded is multiplied twice.
 *
 * The sums of a row depend on that row and on w alone: they run over k in the same order, 64 bytes
 * at a time, whatever the block.
 */
#include "ops/cpu/amx.h"

#include "ops/cpu/amx_tiles.h"
#include "ops/cpu/packed_rows.h"
#include "ops/cpu/transpose.h"

/* The tiles: sums of rows 0 to 15 and of rows 16 to 31 by two panels, two tiles of rows of x, two
 * of panels of w */
enum { SUM00, SUM01, SUM10, SUM11, LEFT0, LEFT1, RIGHT0, RIGHT1 };
enum { BLOCK_ROWS = 2 * TILE_ROWS };

INLINE void tile_dot(struct tiles *t, const int sum, const int a, const int b, const enum how how)
{
    if (how == BF16_DOT)
        tile_dot_bf16(t, sum, a, b);
    else
        tile_dot_i8(t, sum, a, b);
}

/* Tiles for blocks of `rows` rows, up to BLOCK_ROWS */
INLINE void configure(struct tiles *t, int rows)
{
    int upper = int_min(rows, TILE_ROWS), lower = rows - upper;
    struct tile_shapes s = tile_shapes();
    tile_shape(&s, SUM00, upper);
    tile_shape(&s, SUM01, upper);
    tile_shape(&s, LEFT0, upper);
    tile_shape(&s, SUM10, lower);
    tile_shape(&s, SUM11, lower);
    tile_shape(&s, LEFT1, lower);
    tile_shape(&s, RIGHT0, TILE_ROWS);
    tile_shape(&s, RIGHT1, TILE_ROWS);
    tiles_configure(t, &s);
}

INLINE void load_right(struct tiles *t, const int to, const char *w, const bool once)
{
    if (once)
        tile_load_once(t, to, w, TILE_LINE);
    else
        tile_load(t, to, w, TILE_LINE);
}

/* Adds the products of 64 bytes along k: R tiles of x, whose rows are pitch bytes apart, and C
 * tiles of w, which other blocks of rows soon load again unless `once` is set. */
INLINE void multiply_step(struct tiles *t, const char *x0, const char *x1, size_t pitch,
                          const char *w0, const char *w1, const enum how how, const bool once,
                          const int R, const int C)
{
    load_right(t, RIGHT0, w0, once);
    tile_load(t, LEFT0, x0, pitch);
    tile_dot(t, SUM00, LEFT0, RIGHT0, how);
    if (C > 1) {
        load_right(t, RIGHT1, w1, once);
        tile_dot(t, SUM01, LEFT0, RIGHT1, how);
    }
    if (R > 1) {
        tile_load(t, LEFT1, x1, pitch);
        tile_dot(t, SUM10, LEFT1, RIGHT0, how);
        if (C > 1) tile_dot(t, SUM11, LEFT1, RIGHT1, how);
    }
}

/* ---- products with packed weights ---- */

/* One or two panels of w, as the blocks of rows need them */
struct columns {
    int panel;
    int steps;        /* full tiles along k */
    const char *w[2]; /* the panels */
    /* what the sums of each column begin with: the correction for bytes of x that are 128 too
     * large; or 0 */
    int32_t start[2][LANES];
    bool rest;                /* whether k has a last tile that is not full; */
    char last[2][TILE_BYTES]; /* it is filled up with zeros */
};

static void columns_init(struct columns *c, const struct packed_task *t, int panel, int panels,
                         const enum how how)
{
    int groups = t->groups % TILE_ROWS;
    c->panel = panel;
    c->steps = t->groups / TILE_ROWS;
    c->rest = groups > 0;
    for (int i = 0; i < panels; i++) {
        c->w[i] = t->panels + (panel + i) * t->stride;
        memset(c->start[i], 0, sizeof c->start[i]);
        for (int l = 0; l < LANES && how == I8_DOT; l++) {
            int32_t sum;
            memcpy(&sum, panel_tail(t, panel + i) + LINE + l * sizeof sum, sizeof sum);
            c->start[i][l] = sum * -128;
        }
        if (!c->rest) continue;
        memset(c->last[i], 0, sizeof c->last[i]);
        memcpy(c->last[i], c->w[i] + (size_t)c->steps * TILE_BYTES, (size_t)groups * LINE);
    }
}

/* A block whose products are summed, and whose sums are not stored in y yet: that is done a few
 * rows at a time while the next block is multiplied, so that the tiles and the vector units work
 * side by side, and stores to y have time to find their cache lines. */
struct unfinished {
    int row, rows; /* rows = 0: there is none */
    int panel, panels;
    const vi (*sum)[TILE_ROWS * VECS]; /* [2 tiles of rows][2 panels] */
};

/* Rows [from, to) of the block, as far as it has them. */
INLINE void finish_part(const struct packed_task *t, const struct unfinished *u, int from, int to,
                        const enum how how)
{
    to = int_min(to, u->rows);
    for (int r = from, next; r < to; r = next) {
        next = int_min(to, (r / TILE_ROWS + 1) * TILE_ROWS);
        for (int i = 0; i < u->panels; i++) {
            struct tile at = {u->row + r, next - r, u->panel + i};
            finish(t, at, u->sum[r / TILE_ROWS * 2 + i] + r % TILE_ROWS * VECS, how);
        }
    }
}

/* Where a block is: rows of x, panels of w, and its share of the lines of the next two panels'
 * tiles, which all blocks of the same panels prefetch together */
struct place {
    int row, rows;
    int first, last;
};

/* All of y in one block of R tiles of rows by C panels, while the block before it is finished.
 * once: no other block multiplies these panels of w. */
INLINE void multiply_block(struct tiles *tiles, const struct packed_task *t,
                           const struct columns *c, const struct place *at,
                           vi sum[4][TILE_ROWS * VECS], const struct unfinished *u,
                           const enum how how, const bool once, const int R, const int C)
{
    const char *x = t->rows + at->row * t->pitch + PACKED_HEAD;
    float *y = t->y + at->row * t->ldy + c->panel * LANES;
    size_t down = TILE_ROWS * t->pitch; /* bytes to the second tile of rows */
    int share = c->steps ? (BLOCK_ROWS + c->steps - 1) / c->steps : BLOCK_ROWS, done = 0;
    tile_load(tiles, SUM00, c->start[0], 0);
    if (C > 1) tile_load(tiles, SUM01, c->start[1], 0);
    if (R > 1) tile_load(tiles, SUM10, c->start[0], 0);
    if (R > 1 && C > 1) tile_load(tiles, SUM11, c->start[1], 0);
    for (int s = 0; s < c->steps; s++, x += TILE_LINE) {
        const char *w0 = c->w[0] + (size_t)s * TILE_BYTES;
        const char *w1 = C > 1 ? c->w[1] + (size_t)s * TILE_BYTES : NULL;
        for (int i = at->first; i < at->last; i++) {
            __builtin_prefetch(w0 + C * t->stride + i * LINE, 0, 2);
            if (C > 1) __builtin_prefetch(w1 + C * t->stride + i * LINE, 0, 2);
        }
        multiply_step(tiles, x, x + down, t->pitch, w0, w1, how, once, R, C);
        if (done >= BLOCK_ROWS) continue;
        for (int r = done; r < int_min(done + share, at->rows); r++)
            for (int i = 0; i < C; i++) __builtin_prefetch(y + r * t->ldy + i * LANES, 1, 3);
        finish_part(t, u, done, done + share, how);
        done += share;
    }
    if (c->rest)
        multiply_step(tiles, x, x + down, t->pitch, c->last[0], c->last[1], how, false, R, C);
    finish_part(t, u, done, BLOCK_ROWS, how);
    tile_store(tiles, SUM00, sum[0], TILE_LINE);
    if (C > 1) tile_store(tiles, SUM01, sum[1], TILE_LINE);
    if (R > 1) tile_store(tiles, SUM10, sum[2], TILE_LINE);
    if (R > 1 && C > 1) tile_store(tiles, SUM11, sum[3], TILE_LINE);
}

INLINE void multiply_any(struct tiles *tiles, const struct packed_task *t, const struct columns *c,
                         int panels, const struct place *at, vi sum[4][TILE_ROWS * VECS],
                         const struct unfinished *u, const enum how how, const bool once)
{
    if (at->rows > TILE_ROWS && panels > 1)
        multiply_block(tiles, t, c, at, sum, u, how, once, 2, 2);
    else if (at->rows > TILE_ROWS)
        multiply_block(tiles, t, c, at, sum, u, how, once, 2, 1);
    else if (panels > 1)
        multiply_block(tiles, t, c, at, sum, u, how, once, 1, 2);
    else
        multiply_block(tiles, t, c, at, sum, u, how, once, 1, 1);
}

/* Rows are divided into blocks of the same size, so that one configuration of the tiles serves all;
 * the last block may begin in the one before it and compute some rows again. */
INLINE void run_tiles(const struct packed_task *t, int first, int last, const enum how how)
{
    int rows = part(t->m, BLOCK_ROWS, 1), blocks = (t->m + rows - 1) / rows;
    int group = int_max(1, (int)(BLOCK_BYTES / (rows * t->pitch)));
    vi sum[2][4][TILE_ROWS * VECS]; /* of this block and of the last */
    struct unfinished u = {0};
    struct tiles tiles;
    struct columns c;
    int n = 0;
    configure(&tiles, rows);
    for (int from = 0; from < blocks; from += group)
        for (int panel = first; panel < last; panel += 2) {
            int panels = int_min(2, last - panel), of = int_min(group, blocks - from);
            columns_init(&c, t, panel, panels, how);
            for (int b = 0; b < of; b++, n++) {
                struct place at = {int_min((from + b) * rows, t->m - rows), rows,
                                   b * TILE_ROWS / of, (b + 1) * TILE_ROWS / of};
                if (of > 1)
                    multiply_any(&tiles, t, &c, panels, &at, sum[n % 2], &u, how, false);
                else
                    multiply_any(&tiles, t, &c, panels, &at, sum[n % 2], &u, how, true);
                u = (struct unfinished){at.row, rows, panel, panels, sum[n % 2]};
            }
        }
    finish_part(t, &u, 0, BLOCK_ROWS, how);
    tiles_release(&tiles);
}

/* Sums of integers are exact, so the kernel may depend on the number of rows. A tile of w takes as
 * long for one row as for 16; vector instructions, two of which run at once, take as long for two
 * rows. */
enum { FEW = 2 };

static void run_i8(const struct packed_task *t, int first, int last)
{
#ifdef AMX_INSTRUCTIONS
    if (t->m <= FEW) {
        packed_dot_avx512[PACKED_I8].run(t, first, last);
        return;
    }
#endif
    run_tiles(t, first, last, I8_DOT);
}

/* Clears the last tile's line of a prepared row, which k numbers of `width` bytes may not fill. */
INLINE void clear_line(char *row, int k, int width)
{
    size_t bytes = (size_t)k * width;
    memset(row + PACKED_HEAD + (bytes - 1) / TILE_LINE * TILE_LINE, 0, TILE_LINE);
}

static void prepare_i8(char *row, const float *x, int k)
{
    clear_line(row, k, 1);
    prepare_bytes(row, x, k);
}

/* Sums of bf16 depend on the order of additions, which is that of the instruction (amx_tiles.h); so
 * this kernel computes any number of rows. */
static void run_bf16(const struct packed_task *t, int first, int last)
{
    run_tiles(t, first, last, BF16_DOT);
}

static void prepare_bf16(char *row, const float *x, int k)
{
    clear_line(row, k, 2);
    prepare_halves(row, x, k);
}

static const struct packed_kernel packed[PACKED_KINDS] = {
    [PACKED_BF16] = {2, prepare_bf16, run_bf16},
    [PACKED_I8] = {1, prepare_i8, run_i8},
};

/* ---- products of bf16 matrices ---- */

/* Two rows of 16 bf16 numbers as 16 pairs, the numbers of the first row in the lower halves */
INLINE void pairs_of(uint32_t *to, const uint16_t *low, const uint16_t *high)
{
    for (int i = 0; i < AMX_SIDE; i++) to[i] = low[i] | (uint32_t)high[i] << 16;
}

/* Transposes 16 x 16 numbers of 32 bits. */
INLINE void transpose_tile(uint32_t to[AMX_SIDE][AMX_SIDE], uint32_t from[AMX_SIDE][AMX_SIDE])
{
    for (int r = 0; r < AMX_SIDE; r += W)
        for (int c = 0; c < AMX_SIDE; c += W) {
            vf x[W];
#pragma GCC unroll 16
            for (int l = 0; l < W; l++) x[l] = vf_load(from[r + l] + c, 0, TYPE_F32);
            transpose(x);
#pragma GCC unroll 16
            for (int l = 0; l < W; l++) vf_store(to[c + l] + r, 0, x[l], TYPE_F32);
        }
}

/* Tiles, T side by side, whose 16 rows or columns and 32 numbers are all there; they are stored
 * `next` bytes apart. Pairs along the inner side are what is moved: a tile of the left factor has
 * the pairs of a row side by side, one of the right factor those of 16 columns. */
INLINE void pack_full(char *to, size_t next, const uint16_t *from, size_t ld, const bool along,
                      const bool right, const int T)
{
    uint32_t x[2][AMX_SIDE][AMX_SIDE];
    for (int i = 0; i < AMX_SIDE; i++)
        for (int t = 0; t < T; t++) {
            uint32_t *pairs =
                along == right ? x[t][i] : (uint32_t *)(to + t * next + i * TILE_LINE);
            const uint16_t *row = from + (along ? i + t * AMX_SIDE : 2 * i) * ld;
            if (along)
                memcpy(pairs, row, TILE_LINE);
            else
                pairs_of(pairs, row + t * AMX_SIDE, row + ld + t * AMX_SIDE);
        }
    for (int t = 0; t < T && along == right; t++)
        transpose_tile((uint32_t(*)[AMX_SIDE])(to + t * next), x[t]);
}

/* Copies what is there of a tile to a full one, filled up with zeros. */
static void pack_edge(char *to, const uint16_t *from, size_t ld, bool along, bool right, int n,
                      int k)
{
    uint16_t x[AMX_DEEP * AMX_DEEP] = {0};
    int rows = along ? n : k, cols = along ? k : n;
    for (int r = 0; r < rows; r++)
        memcpy(x + r * AMX_DEEP, from + r * ld, sizeof *x * (size_t)cols);
    pack_full(to, 0, x, AMX_DEEP, along, right, 1);
}

INLINE void pack_as(char *to, size_t next, const struct amx_factor *f, int at, int n, int k0, int k,
                    const bool along, const bool right)
{
    const uint16_t *from = along ? mat_at(f->m, at, k0) : mat_at(f->m, k0, at);
    size_t ld = (size_t)f->m.ld;
    if (n == 2 * AMX_SIDE && k == AMX_DEEP) {
        pack_full(to, next, from, ld, along, right, 2);
        return;
    }
    for (int t = 0; t * AMX_SIDE < n; t++)
        pack_edge(to + t * next, from + t * AMX_SIDE * (along ? ld : 1), ld, along, right,
                  int_min(AMX_SIDE, n - t * AMX_SIDE), k);
}

static void pack(char *to, size_t next, const struct amx_factor *f, int at, int n, int k0, int k)
{
    if (f->along && f->right)
        pack_as(to, next, f, at, n, k0, k, true, true);
    else if (f->along)
        pack_as(to, next, f, at, n, k0, k, true, false);
    else if (f->right)
        pack_as(to, next, f, at, n, k0, k, false, true);
    else
        pack_as(to, next, f, at, n, k0, k, false, false);
}

/* A block of the product: two tiles of rows by two of columns, fewer at the edges */
struct block {
    int row, rows, col, cols; /* in c */
};

/* A block whose products are summed, and which bias, ReLU and the rounding to c's type still wait
 * for. They are done a few rows at a time while the next block is multiplied: the tiles and the
 * vector units then work side by side, and stores to c have time to find their cache lines. */
struct pending {
    struct block b;    /* rows = 0: nothing is pending */
    const float *sums; /* tiles [2][2] */
};

/* Rows [from, to) of a block, as far as it has them. */
INLINE void finish_as(const struct gemm_job *j, const struct pending *p, int from, int to,
                      const enum type type)
{
    to = int_min(to, p->b.rows);
    for (int r = from; r < to; r++)
        for (int at = 0; at < p->b.cols; at += W) {
            int n = int_min(W, p->b.cols - at), tile = r / AMX_SIDE * 2 + at / AMX_SIDE;
            size_t i = (size_t)tile * TILE_NUMBERS + r % AMX_SIDE * AMX_SIDE + at % AMX_SIDE;
            void *c = mat_at(j->c, p->b.row + r, p->b.col + at);
            vf s = vf_load(p->sums, i, TYPE_F32);
            if (j->beta != 0) s += vf_load_part(c, 0, n, 0, type);
            if (j->bias.p) s += vf_load_part(j->bias.p, (size_t)(p->b.col + at), n, 0, TYPE_F32);
            if (j->relu) s = vf_max((vf){0}, s);
            vf_store_part(c, 0, n, s, type);
        }
}

static void finish_rows(const struct gemm_job *j, const struct pending *p, int from, int to)
{
    if (j->c.type == TYPE_BF16)
        finish_as(j, p, from, to, TYPE_BF16);
    else
        finish_as(j, p, from, to, TYPE_F32);
}

/* Tiles of sums in memory: where the first is, the distance between rows of a tile, and between
 * tiles below and beside each other */
struct grid {
    char *at; /* NULL: sums begin with zeros */
    size_t pitch, down, across;
};

static struct grid grid_of(char *at, size_t across)
{
    return (struct grid){at, TILE_LINE, across * AMX_TILE, AMX_TILE};
}

static struct grid grid_in(struct mat c, const struct block *b)
{
    size_t pitch = (size_t)c.ld * sizeof(float);
    return (struct grid){mat_at(c, b->row, b->col), pitch, AMX_SIDE * pitch, TILE_LINE};
}

INLINE void sum_begin(struct tiles *t, const int sum, const struct grid *g, const int down,
                      const int across)
{
    if (g->at)
        tile_load(t, sum, g->at + down * g->down + across * g->across, g->pitch);
    else
        tile_zero(t, sum);
}

INLINE void sum_end(struct tiles *t, const int sum, const struct grid *g, const int down,
                    const int across)
{
    tile_store(t, sum, g->at + down * g->down + across * g->across, g->pitch);
}

/* The tiles of the left factor of a block: the first tile, the distance between rows of a tile, and
 * between tiles below each other and along the inner side */
struct left {
    const char *at;
    size_t pitch, down, step;
};

/* The left factor of the next rows. While blocks of these rows are multiplied, its cache lines are
 * prefetched in order, and packed some steps later where that is needed. */
struct next_left {
    const char *line;        /* the next line to prefetch */
    ptrdiff_t beside, below; /* from a line to the next, and from a row's end to the next row */
    int lines;               /* left to prefetch */
    int length, along;       /* lines of a row, and those of this row that are done */
    int due;                 /* of `across` parts of a line, by which prefetching is behind */
    char *to;                /* NULL: the tiles are loaded from the matrix */
    int row, rows;
    int k, wait; /* what is packed of the inner side, and steps until more is */
};

static struct next_left next_left_of(const struct amx_task *t, int row, char *to)
{
    struct mat m = t->left.m;
    bool along = t->left.along;
    ptrdiff_t pitch = (ptrdiff_t)m.ld * (ptrdiff_t)sizeof(uint16_t);
    int rows = int_min(BLOCK_ROWS, t->job->c.rows - row);
    return (struct next_left){.line = along ? mat_at(m, row, t->k) : mat_at(m, t->k, row),
                              .beside = along ? TILE_LINE : pitch,
                              .below = along ? pitch - (ptrdiff_t)t->deep * TILE_LINE : 0,
                              .lines = along ? rows * t->deep : t->inner,
                              .length = along ? t->deep : t->inner,
                              .to = to,
                              .row = row,
                              .rows = rows,
                              .wait = 2 * amx_across(t)};
}

/* Packs the next AMX_DEEP numbers of the inner side. */
static void next_left_pack(const struct amx_task *t, struct next_left *n)
{
    size_t next = (size_t)t->deep * AMX_TILE;
    pack(n->to + n->k / AMX_DEEP * AMX_TILE, next, &t->left, n->row, n->rows, t->k + n->k,
         int_min(AMX_DEEP, t->inner - n->k));
    n->k += AMX_DEEP;
}

/* What is done in each step; after all blocks of some rows those that follow are prefetched, and
 * all but the end is packed. */
INLINE void next_left_step(const struct amx_task *t, struct next_left *n, int across)
{
    if (!n->lines) return;
    for (n->due += BLOCK_ROWS; n->due >= across && n->lines; n->due -= across, n->lines--) {
        __builtin_prefetch(n->line, 0, 2);
        n->line += n->beside;
        if (++n->along == n->length) {
            n->along = 0;
            n->line += n->below;
        }
    }
    if (n->to && --n->wait == 0) {
        next_left_pack(t, n);
        n->wait = across;
    }
}

/* The left factor of the rows that were the next ones; packs what is missing. */
static struct left next_left_end(const struct amx_task *t, struct next_left *n)
{
    size_t pitch = (size_t)t->left.m.ld * sizeof(uint16_t), next = (size_t)t->deep * AMX_TILE;
    if (!n->to)
        return (struct left){mat_at(t->left.m, n->row, t->k), pitch, AMX_SIDE * pitch, TILE_LINE};
    while (n->k < t->inner) next_left_pack(t, n);
    return (struct left){n->to, TILE_LINE, next, AMX_TILE};
}

/* The rows of c of the next block, which are prefetched */
struct next_c {
    char *at;
    size_t row;
    bool wide; /* a row of a block has two cache lines, not one */
};

/* A block of R by C tiles, while the one before it is finished */
INLINE void multiply_tiles(struct tiles *tiles, const struct amx_task *t, const struct left *l,
                           const char *right, const struct grid *from, const struct grid *to,
                           struct next_left *n, const struct next_c *c, const struct pending *p,
                           const int R, const int C)
{
    const char *left = l->at;
    size_t next = (size_t)t->deep * AMX_TILE;
    int share = (BLOCK_ROWS + t->deep - 1) / t->deep; /* rows of c for each step */
    int across = amx_across(t);
    sum_begin(tiles, SUM00, from, 0, 0);
    if (C > 1) sum_begin(tiles, SUM01, from, 0, 1);
    if (R > 1) sum_begin(tiles, SUM10, from, 1, 0);
    if (R > 1 && C > 1) sum_begin(tiles, SUM11, from, 1, 1);
    for (int s = 0, row = 0; s < t->deep; s++, left += l->step, right += AMX_TILE) {
        next_left_step(t, n, across);
        multiply_step(tiles, left, left + l->down, l->pitch, right, right + next, BF16_DOT, true, R,
                      C);
        if (row >= BLOCK_ROWS) continue;
        for (int i = row; i < row + share; i++) {
            __builtin_prefetch(c->at + i * c->row, 1, 3);
            if (c->wide) __builtin_prefetch(c->at + i * c->row + TILE_LINE, 1, 3);
        }
        finish_rows(t->job, p, row, row + share);
        row += share;
    }
    sum_end(tiles, SUM00, to, 0, 0);
    if (C > 1) sum_end(tiles, SUM01, to, 0, 1);
    if (R > 1) sum_end(tiles, SUM10, to, 1, 0);
    if (R > 1 && C > 1) sum_end(tiles, SUM11, to, 1, 1);
}

static struct block block_at(const struct amx_task *t, int i)
{
    struct mat c = t->job->c;
    struct block b = {.row = i / amx_across(t) * BLOCK_ROWS,
                      .col = t->col + i % amx_across(t) * BLOCK_ROWS};
    b.rows = int_min(BLOCK_ROWS, c.rows - b.row);
    b.cols = int_min(BLOCK_ROWS, t->col + t->cols - b.col);
    return b;
}

static struct next_c next_c_of(const struct amx_task *t, int i)
{
    struct mat c = t->job->c;
    struct block b = block_at(t, i);
    return (struct next_c){mat_at(c, b.row, b.col), (size_t)c.ld * type_size(c.type),
                           c.type == TYPE_F32};
}

/* Where the sums of a block come from and go to; `sums` is for those that will be finished. */
static void grids_of(const struct amx_task *t, const struct block *b, char *sums, struct grid *from,
                     struct grid *to)
{
    int cols = amx_tiles(t->cols), down = b->row / AMX_SIDE, beside = (b->col - t->col) / AMX_SIDE;
    struct grid none = {0}, kept;
    if (t->in_place) {
        kept = grid_in(t->job->c, b);
        *from = t->begins && t->job->beta == 0 ? none : kept;
        *to = kept;
        return;
    }
    kept = t->begins && t->ends
               ? none
               : grid_of(t->sums + ((size_t)down * cols + beside) * AMX_TILE, cols);
    *from = t->begins ? none : kept;
    *to = t->ends ? grid_of(sums, 2) : kept;
}

/* The tiles of a block's rows of the left factor stay in the first-level cache, or nearly, while
 * those of the right factor come from the second-level cache. */
static void multiply(const struct amx_task *t, int first, int last)
{
    float sums[2][4][TILE_NUMBERS] __attribute__((aligned(64))); /* of this block and the last */
    struct pending pending = {0};
    struct tiles tiles;
    int across = amx_across(t), rows = first / across; /* blocks in a row, and rows of blocks */
    if (first == last) return;
    struct left left = {0};
    struct next_left next = next_left_of(t, rows * BLOCK_ROWS, t->packed[rows % 2]);
    configure(&tiles, BLOCK_ROWS);
    for (int i = first; i < last; i++) {
        struct block b = block_at(t, i);
        struct next_c c = next_c_of(t, int_min(i + 1, last - 1));
        struct grid from, to;
        const char *right = t->right + (size_t)(b.col - t->col) / AMX_SIDE * t->deep * AMX_TILE;
        if (i == first || i % across == 0) {
            rows = i / across + 1;
            left = next_left_end(t, &next);
            next = (struct next_left){0};
            if (rows * across < last)
                next = next_left_of(t, rows * BLOCK_ROWS, t->packed[rows % 2]);
        }
        grids_of(t, &b, (char *)sums[i % 2], &from, &to);
        if (b.rows > AMX_SIDE && b.cols > AMX_SIDE)
            multiply_tiles(&tiles, t, &left, right, &from, &to, &next, &c, &pending, 2, 2);
        else if (b.rows > AMX_SIDE)
            multiply_tiles(&tiles, t, &left, right, &from, &to, &next, &c, &pending, 2, 1);
        else if (b.cols > AMX_SIDE)
            multiply_tiles(&tiles, t, &left, right, &from, &to, &next, &c, &pending, 1, 2);
        else
            multiply_tiles(&tiles, t, &left, right, &from, &to, &next, &c, &pending, 1, 1);
        if (!t->in_place && t->ends) pending = (struct pending){b, sums[i % 2][0]};
    }
    finish_rows(t->job, &pending, 0, BLOCK_ROWS);
    tiles_release(&tiles);
}

/* ---- single tiles ---- */

INLINE void product(void *sum, const void *a, const void *b, const enum how how)
{
    struct tiles t;
    configure(&t, TILE_ROWS);
    tile_load(&t, SUM00, sum, TILE_LINE);
    tile_load(&t, LEFT0, a, TILE_LINE);
    tile_load(&t, RIGHT0, b, TILE_LINE);
    tile_dot(&t, SUM00, LEFT0, RIGHT0, how);
    tile_store(&t, SUM00, sum, TILE_LINE);
    tiles_release(&t);
}

static void product_i8(int32_t *sum, const uint8_t *a, const int8_t *b)
{
    product(sum, a, b, I8_DOT);
}
static void product_bf16(float *sum, const uint16_t *a, const uint16_t *b)
{
    product(sum, a, b, BF16_DOT);
}

const struct amx_kernels
#ifdef AMX_INSTRUCTIONS
    amx_real
#else
    OF_ISA(amx_emulated)
#endif
    = {packed, pack, multiply, product_i8, product_bf16};
