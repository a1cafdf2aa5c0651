/*
 * word_map.c - words on the plane of their two principal components.
 *
 * With n vectors as the rows of X, less their mean, the coordinates on the components are the
 * eigenvectors of X XT, times the square roots of their eigenvalues. Power iteration finds them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "study/embeddings.h"

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Subtracts from u its part along v, which has length 1, and scales u to length 1. Returns the
 * length before; where that is 0, u becomes 0. */
static double make_unit(double *u, const double *v, int n)
{
    double along = v ? dot(u, v, n) : 0;
    for (int i = 0; i < n && v; i++) u[i] -= along * v[i];
    double length = sqrt(dot(u, u, n));
    for (int i = 0; i < n; i++) u[i] = length > 0 ? u[i] / length : 0;
    return length;
}

/* The eigenvector u of g [n][n] with the largest eigenvalue among those orthogonal to v, which may
 * be NULL; returns the eigenvalue. next [n] is a buffer. */
static double power_iteration(double *u, double *next, const double *g, const double *v, int n)
{
    enum { STEPS = 10000 };
    const double close = 1e-12;
    double value = 0;
    for (int i = 0; i < n; i++) u[i] = 1.0 / (1 + i) + (i % 2 ? -0.5 : 0.5);
    make_unit(u, v, n);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < n; i++) next[i] = dot(g + (size_t)i * n, u, n);
        value = make_unit(next, v, n);
        double turned = 1 - fabs(dot(u, next, n));
        memcpy(u, next, (size_t)n * sizeof *u);
        if (turned < close) break;
    }
    return value;
}

static void centre(double *vector, int n, int d)
{
    for (int c = 0; c < d; c++) {
        double mean = 0;
        for (int i = 0; i < n; i++) mean += vector[(size_t)i * d + c] / n;
        for (int i = 0; i < n; i++) vector[(size_t)i * d + c] -= mean;
    }
}

static void coordinates(double *u, double value, int n)
{
    double far = 0;
    for (int i = 0; i < n; i++)
        if (fabs(u[i]) > fabs(far)) far = u[i];
    for (int i = 0; i < n; i++) u[i] *= (far < 0 ? -1 : 1) * sqrt(fmax(value, 0));
}

enum heed_status principal_components(double *x, double *y, double share[2], double *vector, int n,
                                      int d, struct heed_error *err)
{
    size_t bytes = ((size_t)n * n + n) * sizeof(double);
    double *g = calloc(1, bytes), all = 0;
    if (!g) return error_memory(err, bytes, "products of vectors");
    double *next = g + (size_t)n * n;
    centre(vector, n, d);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            g[(size_t)i * n + k] = dot(vector + (size_t)i * d, vector + (size_t)k * d, d);
    for (int i = 0; i < n; i++) all += g[(size_t)i * n + i];
    double first = power_iteration(x, next, g, NULL, n);
    double second = power_iteration(y, next, g, x, n);
    coordinates(x, first, n);
    coordinates(y, second, n);
    share[0] = all > 0 ? first / all : 0;
    share[1] = all > 0 ? second / all : 0;
    free(g);
    return HEED_OK;
}

/* One block of memory. */
static struct heed_word_map *map_make(const char *const *word, int n, struct heed_error *err)
{
    size_t text = 0;
    for (int i = 0; i < n; i++) text += strlen(word[i]) + 1;
    size_t bytes = sizeof(struct heed_word_map) + n * (2 * sizeof(double) + sizeof(char *)) + text;
    struct heed_word_map *m = calloc(1, bytes);
    if (!m) {
        error_memory(err, bytes, "a map of words");
        return NULL;
    }
    double *x = (double *)(m + 1);
    const char **names = (const char **)(x + 2 * (size_t)n);
    char *to = (char *)(names + n);
    *m = (struct heed_word_map){.n = n, .word = names, .x = x, .y = x + n};
    for (int i = 0; i < n; i++, to += strlen(to) + 1) names[i] = strcpy(to, word[i]);
    return m;
}

enum heed_status heed_word_map_of(const struct heed_embeddings *e, const char *const *word, int n,
                                  struct heed_word_map **out, struct heed_error *err)
{
    enum { WORDS_MIN = 3, WORDS_MAX = 1000 };
    if (!e || !out) return error_null(err, e ? "out" : "embeddings");
    enum heed_status status = error_strings(err, "word", word, n);
    if (status) return status;
    if (n < WORDS_MIN || n > WORDS_MAX)
        return error_set(err, HEED_EARG, "a map has %d words, expected %d to %d", n, WORDS_MIN,
                         WORDS_MAX);
    struct heed_ids ids = {0};
    struct heed_word_map *m = map_make(word, n, err);
    double *vector = m ? calloc((size_t)n * e->d, sizeof *vector) : NULL;
    if (!m) status = HEED_ENOMEM;
    if (m && !vector) status = error_memory(err, (size_t)n * e->d * sizeof *vector, "vectors");
    for (int i = 0; i < n && !status; i++)
        status = embeddings_add(e, word[i], 1, vector + (size_t)i * e->d, &ids, err);
    if (!status)
        status =
            principal_components((double *)m->x, (double *)m->y, m->share, vector, n, e->d, err);
    free(vector);
    free(ids.v);
    if (status)
        heed_word_map_free(m);
    else
        *out = m;
    return status;
}

void heed_word_map_free(struct heed_word_map *m)
{
    free(m);
}
