/*
 * head_stats.c - see head_stats.h.
 */
#include "study/head_stats.h"

#include <math.h>

static void mean_add(struct head_mean *m, double x)
{
    m->sum += x;
    m->n++;
}

/* The weight of a key that may not be there; then the query does not count. */
static void share_add(struct head_mean *m, const float *weight, int keys, int key)
{
    if (key >= 0 && key < keys) mean_add(m, (double)weight[key]);
}

static double sum_of(const float *weight, int from, int to)
{
    double sum = 0;
    for (int k = from; k < to; k++) sum += (double)weight[k];
    return sum;
}

void head_sums_add(struct head_sums *s, const float *weight, const struct head_query *q)
{
    double entropy = 0, distance = 0, near = 0;
    for (int k = 0; k < q->keys; k++) {
        double w = (double)weight[k];
        if (w > 0) entropy -= w * log2(w);
        distance += w * fabs((double)k - q->centre);
        if (fabs(k - q->diagonal) <= 1) near += w;
    }
    mean_add(&s->entropy, entropy);
    mean_add(&s->relative, entropy / log2(q->keys));
    mean_add(&s->distance, distance);
    mean_add(&s->diagonal, near);
    share_add(&s->previous, weight, q->keys, q->centre - 1);
    share_add(&s->same, weight, q->keys, q->centre);
    share_add(&s->next, weight, q->keys, q->centre + 1);
    if (q->first) mean_add(&s->first, sum_of(weight, 0, q->first));
    if (q->end) mean_add(&s->end, sum_of(weight, q->keys - q->end, q->keys));
}

static void mean_join(struct head_mean *m, struct head_mean other)
{
    m->sum += other.sum;
    m->n += other.n;
}

void head_sums_join(struct head_sums *s, const struct head_sums *other)
{
    mean_join(&s->entropy, other->entropy);
    mean_join(&s->relative, other->relative);
    mean_join(&s->distance, other->distance);
    mean_join(&s->previous, other->previous);
    mean_join(&s->same, other->same);
    mean_join(&s->next, other->next);
    mean_join(&s->diagonal, other->diagonal);
    mean_join(&s->first, other->first);
    mean_join(&s->end, other->end);
}

static double mean_of(struct head_mean m)
{
    return m.n > 0 ? m.sum / m.n : 0;
}

double head_share(const struct heed_head *h, enum heed_role role)
{
    switch (role) {
    case HEED_ROLE_PREVIOUS:
        return h->previous;
    case HEED_ROLE_SAME:
        return h->same;
    case HEED_ROLE_NEXT:
        return h->next;
    case HEED_ROLE_REST:
        return h->first + h->end;
    case HEED_ROLE_NEARBY:
        return h->diagonal;
    case HEED_ROLE_BROAD:
        return h->relative;
    case HEED_ROLE_SELECTIVE:
        return 1 - h->relative;
    default:
        return 0;
    }
}

/* Of the roles that one place of the keys makes, the one with the largest share, if that is half of
 * the weight. */
static enum heed_role role_of(const struct heed_head *h)
{
    const double half = 0.5, broad = 0.8;
    enum heed_role best = HEED_ROLE_PREVIOUS;
    for (int r = HEED_ROLE_SAME; r <= HEED_ROLE_REST; r++)
        if (head_share(h, r) > head_share(h, best)) best = (enum heed_role)r;
    if (head_share(h, best) >= half) return best;
    if (h->diagonal >= half) return HEED_ROLE_NEARBY;
    if (h->relative >= broad) return HEED_ROLE_BROAD;
    return h->relative <= half ? HEED_ROLE_SELECTIVE : HEED_ROLE_MIXED;
}

void head_means(struct heed_head *h, const struct head_sums *s)
{
    h->entropy = mean_of(s->entropy);
    h->relative = mean_of(s->relative);
    h->distance = mean_of(s->distance);
    h->previous = mean_of(s->previous);
    h->same = mean_of(s->same);
    h->next = mean_of(s->next);
    h->diagonal = mean_of(s->diagonal);
    h->first = mean_of(s->first);
    h->end = mean_of(s->end);
    h->role = role_of(h);
}

static double dot(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}

void head_cosines_add(double *sum, double *norm, const float *const *row, int n, int keys)
{
    for (int i = 0; i < n; i++) norm[i] = sqrt(dot(row[i], row[i], keys));
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++)
            if (norm[i] > 0 && norm[j] > 0)
                sum[(size_t)i * n + j] += dot(row[i], row[j], keys) / (norm[i] * norm[j]);
}

const char *heed_role_name(enum heed_attention_use use, enum heed_role role)
{
    static const char *const self[HEED_ROLES] = {
        [HEED_ROLE_PREVIOUS] = "previous",   [HEED_ROLE_SAME] = "same",
        [HEED_ROLE_NEXT] = "next",           [HEED_ROLE_REST] = "rest",
        [HEED_ROLE_NEARBY] = "nearby",       [HEED_ROLE_BROAD] = "broad",
        [HEED_ROLE_SELECTIVE] = "selective", [HEED_ROLE_MIXED] = "mixed"};
    static const char *const cross[HEED_ROLES] = {[HEED_ROLE_PREVIOUS] = "before aligned",
                                                  [HEED_ROLE_SAME] = "alignment",
                                                  [HEED_ROLE_NEXT] = "after aligned",
                                                  [HEED_ROLE_NEARBY] = "diagonal"};
    if ((unsigned)role >= HEED_ROLES) return "unknown";
    return use == HEED_USE_CROSS && cross[role] ? cross[role] : self[role];
}
