/*
 * minmax.h - the smaller and the larger of two ints.
 */
#ifndef HEED_BASE_MINMAX_H
#define HEED_BASE_MINMAX_H

static inline int int_min(int a, int b)
{
    return a < b ? a : b;
}

static inline int int_max(int a, int b)
{
    return a > b ? a : b;
}

#endif
