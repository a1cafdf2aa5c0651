/*
 * panels.h - the layout of int8 weights for products on a CPU. Files have the same layout, so that
 * a mapped file is used without a copy.
 *
 * A panel has PACK_ROWS rows. Its body has 4 columns of each row, then the next 4 columns of each
 * row, and so on; two lines follow: the scales of the rows (quant.h), float, and the sums of their
 * numbers, int32. Columns are padded with zeros to a multiple of 4, and rows to one of PACK_ROWS.
 */
#ifndef HEED_OPS_PANELS_H
#define HEED_OPS_PANELS_H
#include "ops/ops.h"

enum { PANEL_LINE = 4 * PACK_ROWS }; /* bytes */

static inline size_t panel_body(int cols)
{
    return ((size_t)cols + 3) / 4 * PANEL_LINE;
}

static inline size_t panel_bytes(int cols)
{
    return panel_body(cols) + 2 * PANEL_LINE;
}

static inline size_t panels_bytes(int rows, int cols)
{
    return ((size_t)rows + PACK_ROWS - 1) / PACK_ROWS * panel_bytes(cols);
}

/* Index in a panel of number i of a row, where `group` numbers of a row are adjacent */
static inline size_t panel_at(int row, int i, int group)
{
    return ((size_t)(i / group) * PACK_ROWS + row) * group + i % group;
}

/* [PACK_ROWS] */
static inline float *panel_scales(const void *panel, int cols)
{
    return (float *)((char *)panel + panel_body(cols));
}

/* [PACK_ROWS] */
static inline int32_t *panel_sums(const void *panel, int cols)
{
    return (int32_t *)(panel_scales(panel, cols) + PACK_ROWS);
}

/* Stores columns [first, first+n) of a row; returns their sum. */
static inline int32_t panel_part(void *panel, int row, int first, const int8_t *q, int n)
{
    int32_t sum = 0;
    for (int i = 0; i < n; i++) ((int8_t *)panel)[panel_at(row, first + i, 4)] = q[i];
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) sum += q[i];
    return sum;
}

/* Stores the scale of a row and the sum of its numbers. */
static inline void panel_end(void *panel, int row, float scale, int32_t sum, int cols)
{
    panel_scales(panel, cols)[row] = scale;
    panel_sums(panel, cols)[row] = sum;
}

/* Stores a row of a panel; its padding columns must be zero already. */
static inline void panel_put(void *panel, int row, const int8_t *q, float scale, int cols)
{
    panel_end(panel, row, scale, panel_part(panel, row, 0, q, cols), cols);
}

/* q[cols] = a row of a panel, as multiples of the scale that is returned */
static inline float panel_get(int8_t *q, const void *panel, int row, int cols)
{
    for (int i = 0; i < cols; i++) q[i] = ((const int8_t *)panel)[panel_at(row, i, 4)];
    return panel_scales(panel, cols)[row];
}

#endif
