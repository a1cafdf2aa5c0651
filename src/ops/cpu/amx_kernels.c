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

/* Adds the products of 64 bytes along k: R tiles of x, whose rows are pitch bytes apart, and C
 * tiles of w. */
INLINE void multiply_step(struct tiles *t, const char *x0, const char *x1, size_t pitch,
                          const char *w0, const char *w1, const enum how how, const int R,
                          const int C)
{
    tile_load(t, RIGHT0, w0, TILE_LINE);
    tile_load(t, LEFT0, x0, pitch);
    tile_dot(t, SUM00, LEFT0, RIGHT0, how);
    if (C > 1) {
        tile_load(t, RIGHT1, w1, TILE_LINE);
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

/* Prefetches the tile of the next panels that takes the place of the one at w. */
INLINE void expect(const char *w, size_t ahead)
{
    for (int i = 0; i < TILE_ROWS; i++) __builtin_prefetch(w + ahead + i * LINE, 0, 2);
}

/* All of y in one block: R tiles of rows from `row` on, C panels. */
INLINE void multiply_block(struct tiles *tiles, const struct packed_task *t,
                           const struct columns *c, int row, int rows, const enum how how,
                           const int R, const int C)
{
    const char *x = t->rows + row * t->pitch + PACKED_HEAD;
    size_t down = TILE_ROWS * t->pitch; /* bytes to the second tile of rows */
    vi sum[4][TILE_ROWS * VECS];
    tile_load(tiles, SUM00, c->start[0], 0);
    if (C > 1) tile_load(tiles, SUM01, c->start[1], 0);
    if (R > 1) tile_load(tiles, SUM10, c->start[0], 0);
    if (R > 1 && C > 1) tile_load(tiles, SUM11, c->start[1], 0);
    for (int s = 0; s < c->steps; s++, x += TILE_LINE) {
        const char *w0 = c->w[0] + (size_t)s * TILE_BYTES;
        const char *w1 = C > 1 ? c->w[1] + (size_t)s * TILE_BYTES : NULL;
        if (row == 0) {
            expect(w0, C * t->stride);
            if (C > 1) expect(w1, C * t->stride);
        }
        multiply_step(tiles, x, x + down, t->pitch, w0, w1, how, R, C);
    }
    if (c->rest) multiply_step(tiles, x, x + down, t->pitch, c->last[0], c->last[1], how, R, C);
    tile_store(tiles, SUM00, sum[0], TILE_LINE);
    if (C > 1) tile_store(tiles, SUM01, sum[1], TILE_LINE);
    if (R > 1) tile_store(tiles, SUM10, sum[2], TILE_LINE);
    if (R > 1 && C > 1) tile_store(tiles, SUM11, sum[3], TILE_LINE);
    for (int i = 0; i < 2 * R; i++) {
        int r = i / 2 * TILE_ROWS;
        struct tile at = {row + r, int_min(rows - r, TILE_ROWS), c->panel + i % 2};
        if (i % 2 < C) finish(t, at, sum[i], how);
    }
}

/* Rows are divided into blocks of the same size, so that one configuration of the tiles serves all;
 * the last block may begin in the one before it and compute some rows again. */
INLINE void run_tiles(const struct packed_task *t, int first, int last, const enum how how)
{
    int rows = part(t->m, BLOCK_ROWS, 1), blocks = (t->m + rows - 1) / rows;
    int group = int_max(1, (int)(BLOCK_BYTES / (rows * t->pitch)));
    struct tiles tiles;
    struct columns c;
    configure(&tiles, rows);
    for (int from = 0; from < blocks; from += group)
        for (int panel = first; panel < last; panel += 2) {
            int panels = int_min(2, last - panel);
            columns_init(&c, t, panel, panels, how);
            for (int b = from; b < int_min(from + group, blocks); b++) {
                int row = int_min(b * rows, t->m - rows);
                if (rows > TILE_ROWS && panels > 1)
                    multiply_block(&tiles, t, &c, row, rows, how, 2, 2);
                else if (rows > TILE_ROWS)
                    multiply_block(&tiles, t, &c, row, rows, how, 2, 1);
                else if (panels > 1)
                    multiply_block(&tiles, t, &c, row, rows, how, 1, 2);
                else
                    multiply_block(&tiles, t, &c, row, rows, how, 1, 1);
            }
        }
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

INLINE void pack_as(char *to, const struct amx_factor *f, int at, int n, int k0, int k,
                    const bool along, const bool right)
{
    size_t next = (size_t)(k + AMX_DEEP - 1) / AMX_DEEP * AMX_TILE, ld = (size_t)f->m.ld;
    for (int i = 0; i < k; i += AMX_DEEP, to += AMX_TILE) {
        const uint16_t *from = along ? mat_at(f->m, at, k0 + i) : mat_at(f->m, k0 + i, at);
        if (n == 2 * AMX_SIDE && k - i >= AMX_DEEP) {
            pack_full(to, next, from, ld, along, right, 2);
            continue;
        }
        for (int t = 0; t * AMX_SIDE < n; t++)
            pack_edge(to + t * next, from + t * AMX_SIDE * (along ? ld : 1), ld, along, right,
                      int_min(AMX_SIDE, n - t * AMX_SIDE), int_min(AMX_DEEP, k - i));
    }
}

static void pack(char *to, const struct amx_factor *f, int at, int n, int k0, int k)
{
    if (f->along && f->right)
        pack_as(to, f, at, n, k0, k, true, true);
    else if (f->along)
        pack_as(to, f, at, n, k0, k, true, false);
    else if (f->right)
        pack_as(to, f, at, n, k0, k, false, true);
    else
        pack_as(to, f, at, n, k0, k, false, false);
}

/* Stores a tile of sums in c, with beta, bias and ReLU. */
INLINE void finish_tile(const struct gemm_job *j, int row, int col, const float *sum,
                        const enum type type)
{
    int rows = int_min(AMX_SIDE, j->c.rows - row);
    for (int v = 0; v < AMX_SIDE; v += W) {
        int n = int_min(W, j->c.cols - col - v);
        if (n <= 0) break;
        vf bias = j->bias.p ? vf_load_part(j->bias.p, (size_t)(col + v), n, 0, TYPE_F32) : (vf){0};
        for (int r = 0; r < rows; r++) {
            void *c = mat_at(j->c, row + r, col + v);
            vf s = vf_load(sum, (size_t)(r * AMX_SIDE + v), TYPE_F32);
            if (j->beta != 0) s += vf_load_part(c, 0, n, 0, type);
            s += bias;
            if (j->relu) s = vf_max((vf){0}, s);
            vf_store_part(c, 0, n, s, type);
        }
    }
}

/* The tile of sums that is `down` rows and `across` columns of tiles from the first of the task */
INLINE char *sums_at(const struct amx_task *t, int down, int across)
{
    return t->sums + ((size_t)down * amx_tiles(t->cols) + across) * AMX_TILE;
}

INLINE void sum_begin(struct tiles *tiles, const struct amx_task *t, const int sum, int down,
                      int across)
{
    if (t->begins)
        tile_zero(tiles, sum);
    else
        tile_load(tiles, sum, sums_at(t, down, across), TILE_LINE);
}

INLINE void sum_end(struct tiles *tiles, const struct amx_task *t, const int sum, int down,
                    int across)
{
    const struct gemm_job *j = t->job;
    int row = t->row + down * AMX_SIDE, col = t->col + across * AMX_SIDE;
    float s[TILE_NUMBERS] __attribute__((aligned(64)));
    if (!t->ends) {
        tile_store(tiles, sum, sums_at(t, down, across), TILE_LINE);
        return;
    }
    tile_store(tiles, sum, s, TILE_LINE);
    if (j->c.type == TYPE_BF16)
        finish_tile(j, row, col, s, TYPE_BF16);
    else
        finish_tile(j, row, col, s, TYPE_F32);
}

/* A block of R by C tiles */
INLINE void multiply_tiles(struct tiles *tiles, const struct amx_task *t, int down, int across,
                           const int R, const int C)
{
    size_t next = (size_t)t->deep * AMX_TILE;
    const char *left = t->left + down * next, *right = t->right + across * next;
    sum_begin(tiles, t, SUM00, down, across);
    if (C > 1) sum_begin(tiles, t, SUM01, down, across + 1);
    if (R > 1) sum_begin(tiles, t, SUM10, down + 1, across);
    if (R > 1 && C > 1) sum_begin(tiles, t, SUM11, down + 1, across + 1);
    for (const char *end = left + next; left < end; left += AMX_TILE, right += AMX_TILE)
        multiply_step(tiles, left, left + next, TILE_LINE, right, right + next, BF16_DOT, R, C);
    sum_end(tiles, t, SUM00, down, across);
    if (C > 1) sum_end(tiles, t, SUM01, down, across + 1);
    if (R > 1) sum_end(tiles, t, SUM10, down + 1, across);
    if (R > 1 && C > 1) sum_end(tiles, t, SUM11, down + 1, across + 1);
}

/* The tiles of two columns stay in the first-level cache while those of all rows pass. */
static void multiply(const struct amx_task *t, int first, int last)
{
    int rows = amx_tiles(t->rows), cols = amx_tiles(t->cols), blocks = (rows + 1) / 2;
    struct tiles tiles;
    configure(&tiles, BLOCK_ROWS);
    for (int i = first; i < last; i++) {
        int down = i % blocks * 2, across = i / blocks * 2;
        bool two = down + 1 < rows;
        if (two && across + 1 < cols)
            multiply_tiles(&tiles, t, down, across, 2, 2);
        else if (two)
            multiply_tiles(&tiles, t, down, across, 2, 1);
        else if (across + 1 < cols)
            multiply_tiles(&tiles, t, down, across, 1, 2);
        else
            multiply_tiles(&tiles, t, down, across, 1, 1);
    }
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
