/*
 * ref.h - shared by the files of the reference backend: single elements of matrices as double, and
 * the ops that are not in ref.c.
 */
#ifndef HEED_OPS_REF_H
#define HEED_OPS_REF_H
#include "ops/bf16.h"
#include "ops/ops.h"

static inline double get(struct mat m, int row, int col)
{
    const void *p = mat_at(m, row, col);
    switch (m.type) {
    case TYPE_F64:
        return *(const double *)p;
    case TYPE_F32:
        return (double)*(const float *)p;
    default:
        return (double)bf16_to_float(*(const uint16_t *)p);
    }
}

static inline void set(struct mat m, int row, int col, double x)
{
    void *p = mat_at(m, row, col);
    switch (m.type) {
    case TYPE_F64:
        *(double *)p = x;
        break;
    case TYPE_F32:
        *(float *)p = (float)x;
        break;
    default:
        *(uint16_t *)p = bf16_from_float((float)x);
    }
}

static inline void add(struct mat m, int row, int col, double x)
{
    set(m, row, col, get(m, row, col) + x);
}

/* attention.c */
void ref_attend(struct backend *be, const struct attention *a);
void ref_attend_bwd(struct backend *be, const struct attention *a, const struct attention_grad *g);
/* Sets dq, dk and dv to 0 in the rows of the sentences, before gradients are added to them. */
void ref_attend_zero(const struct seqs *s, const struct attention_grad *g);
/* linear_attention.c */
void ref_attend_linear(struct backend *be, const struct attention *a);
void ref_attend_linear_bwd(struct backend *be, const struct attention *a,
                           const struct attention_grad *g);
void ref_linear_state(struct backend *be, struct mat states, const struct attention *a);
void ref_attend_state(struct backend *be, struct mat states, const struct attention *a);
/* experts.c */
void ref_route(struct backend *be, const struct routing *r, struct mat x, struct mat w);
void ref_dispatch(struct backend *be, struct mat y, struct mat x, const struct routing *r,
                  bool gated);
void ref_experts_linear(struct backend *be, struct mat y, struct mat x, struct mat w, struct mat b,
                        struct activation f, const struct routing *r);
void ref_combine(struct backend *be, struct mat y, struct mat x, const struct routing *r);
void ref_experts_linear_bwd(struct backend *be, struct mat dx, struct mat db, struct mat dw,
                            struct mat dy, struct mat x, struct mat w, struct activation f,
                            const struct routing *r);
void ref_route_bwd(struct backend *be, struct mat dx, float beta, struct mat dw, struct mat dy,
                   struct mat y, struct mat dtaken, struct mat x, struct mat w,
                   const struct routing *r, float balance);

#endif
