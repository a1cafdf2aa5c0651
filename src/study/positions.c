/*
 * positions.c - heed_positions_of: how a model tells positions apart, and what the paper says of
 * its sinusoid (3.5), measured: PE(pos + k) is a linear function of PE(pos), dot products depend on
 * the distance alone, and wavelengths go from 2 pi to 10000 * 2 pi.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/locale.h"
#include "base/minmax.h"
#include "decode/session.h"
#include "model/config.h"
#include "model/position.h"
#include "ops/engine.h"

enum {
    LENGTH = 128,
    LENGTH_MIN = 8,
    LENGTH_MAX = 1024,
    WIDTH_MAX = 4096,
    MAPS = 2,
    CHARTS = 2,
    SAID = 6
};

/* The positions and the memory that their pointers lead to. */
struct study {
    struct heed_positions p; /* the first member: heed_positions_free casts */
    struct heed_heat_map map[MAPS];
    struct heed_chart chart[CHARTS];
    const char *said[SAID];
    char sentence[SAID][256], title[160];
    const char **name; /* of the lines of the chart of alibi, one a head */
    char (*names)[16];
};

static void say(struct study *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct study *s, const char *format, ...)
{
    va_list args;
    char *to = s->sentence[s->p.said_n];
    va_start(args, format);
    vsnprintf(to, sizeof s->sentence[0], format, args);
    va_end(args);
    s->said[s->p.said_n++] = to;
}

void heed_positions_free(struct heed_positions *p)
{
    struct study *s = (struct study *)p;
    if (!s) return;
    for (int i = 0; i < p->maps; i++) free((float *)p->map[i].value);
    for (int i = 0; i < p->charts; i++) free((double *)p->chart[i].x);
    free(s->name);
    free(s->names);
    free(s);
}

/* Each returns its numbers, still to be filled, or NULL with an error. */
static float *add_map(struct study *s, const struct heed_heat_map *m, struct heed_error *err)
{
    size_t n = (size_t)m->rows * m->cols;
    float *value = calloc(n, sizeof *value);
    if (!value) {
        error_memory(err, n * sizeof *value, "a table of positions");
        return NULL;
    }
    s->map[s->p.maps] = *m;
    s->map[s->p.maps++].value = value;
    return value;
}

/* x goes up by 1 from `first`. */
static double *add_chart(struct study *s, const struct heed_chart *c, int first,
                         struct heed_error *err)
{
    size_t n = (size_t)(1 + c->lines) * c->n;
    double *x = calloc(n, sizeof *x);
    if (!x) {
        error_memory(err, n * sizeof *x, "a curve of positions");
        return NULL;
    }
    for (int i = 0; i < c->n; i++) x[i] = first + i;
    struct heed_chart *to = &s->chart[s->p.charts++];
    *to = *c;
    to->x = x;
    to->y = x + c->n;
    return x + c->n;
}

static double dot(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}

/* ---- sinusoid and rope ---- */

/* The 2 x 2 matrix that maps the pair of columns at `col` of each row to that of the row k later,
 * by least squares; returns the largest error over the rows. */
static double shift_fit(const float *table, int rows, int d, int col, int k, double m[4])
{
    double a[3] = {0}, b[4] = {0}, worst = 0;
    for (int r = 0; r + k < rows; r++) {
        const float *u = table + (size_t)r * d + col, *v = u + (size_t)k * d;
        a[0] += (double)u[0] * u[0], a[1] += (double)u[0] * u[1], a[2] += (double)u[1] * u[1];
        b[0] += (double)v[0] * u[0], b[1] += (double)v[0] * u[1];
        b[2] += (double)v[1] * u[0], b[3] += (double)v[1] * u[1];
    }
    double det = a[0] * a[2] - a[1] * a[1];
    for (int i = 0; i < 2; i++) {
        m[2 * i] = (b[2 * i] * a[2] - b[2 * i + 1] * a[1]) / det;
        m[2 * i + 1] = (b[2 * i + 1] * a[0] - b[2 * i] * a[1]) / det;
    }
    for (int r = 0; r + k < rows; r++) {
        const float *u = table + (size_t)r * d + col, *v = u + (size_t)k * d;
        for (int i = 0; i < 2; i++)
            worst = fmax(worst, fabs(m[2 * i] * u[0] + m[2 * i + 1] * u[1] - v[i]));
    }
    return worst;
}

/* The largest error with which a row is a linear function of the row k before it, for k = 1, 2, 4
 * and so on up to half of the rows. */
static double shift_error(const float *table, int rows, int d)
{
    double m[4], worst = 0;
    for (int k = 1; k <= rows / 2; k *= 2)
        for (int col = 0; col + 1 < d; col += 2)
            worst = fmax(worst, shift_fit(table, rows, d, col, k, m));
    return worst;
}

/* Mean of the dot products of rows k apart, by the dot product of a row with itself; *spread: the
 * largest difference from one position to another. */
static void dots_over_distance(double *out, double *spread, const float *table, int rows, int d)
{
    double most = 0;
    for (int k = 0; k < rows; k++) {
        double sum = 0, low = INFINITY, high = -INFINITY;
        for (int r = 0; r + k < rows; r++) {
            double x = dot(table + (size_t)r * d, table + (size_t)(r + k) * d, d) / (d / 2.0);
            sum += x;
            low = fmin(low, x);
            high = fmax(high, x);
        }
        out[k] = sum / (rows - k);
        most = fmax(most, high - low);
    }
    *spread = most;
}

/* Positions after which a pair of columns comes back to where it was, by its angle of rotation from
 * one row to the next. */
static void wavelengths(double *out, const float *table, int rows, int d)
{
    const double pi = acos(-1);
    for (int i = 0; i < d / 2; i++) {
        double m[4];
        shift_fit(table, rows, d, 2 * i, 1, m);
        out[i] = 2 * pi / fabs(atan2(m[1] - m[2], m[0] + m[3]));
    }
}

static enum heed_status waves(struct study *s, enum heed_position kind, int d, int length,
                              struct heed_error *err)
{
    static const char *const dots_name[] = {"dot product"}, *const score_name[] = {"score"},
                             *const wave_name[] = {"wavelength"};
    bool rope = kind == HEED_POSITION_ROPE;
    const double pi = acos(-1);
    double spread;
    float *table = add_map(s,
                           &(struct heed_heat_map){.title = rope ? "Cosines and sines of the angles"
                                                                 : "Positional encoding",
                                                   .row = "position",
                                                   .col = "dimension",
                                                   .rows = length,
                                                   .cols = d},
                           err);
    double *dots = table
                       ? add_chart(s,
                                   &(struct heed_chart){.title = rope ? "Score of equal vectors"
                                                                      : "Dot product of positions",
                                                        .x_label = "distance",
                                                        .y_label = "relative to distance 0",
                                                        .n = length,
                                                        .lines = 1,
                                                        .name = rope ? score_name : dots_name},
                                   0, err)
                       : NULL;
    double *wave =
        dots ? add_chart(s,
                         &(struct heed_chart){.title = "Wavelength of a pair of dimensions",
                                              .x_label = "pair",
                                              .y_label = "positions",
                                              .y_log = true,
                                              .n = d / 2,
                                              .lines = 1,
                                              .name = wave_name},
                         0, err)
             : NULL;
    if (!wave) return HEED_ENOMEM;
    position_fill(table, TYPE_F32, length, d, kind);
    dots_over_distance(dots, &spread, table, length, d);
    wavelengths(wave, table, length, d);
    say(s,
        rope ? "Rotating by position gives equal vectors a score that depends on their distance: "
               "from one position to another it differs by at most %.1e."
             : "The dot product of two positions depends on their distance: from one position to "
               "another it differs by at most %.1e.",
        spread);
    if (!rope)
        say(s,
            "PE(pos + k) is a linear function of PE(pos): with one matrix for each k, fitted by "
            "least squares for k = 1, 2, 4 ... up to %d, the largest error is %.1e.",
            length / 2, shift_error(table, length, d));
    say(s,
        "Wavelengths, measured as the angle from one position to the next: from %.4g = 2 pi * %.3f "
        "to %.6g = 2 pi * %.0f.",
        wave[0], wave[0] / (2 * pi), wave[d / 2 - 1], wave[d / 2 - 1] / (2 * pi));
    return HEED_OK;
}

/* ---- what a model has learned ---- */

/* Copies a table of f32 from the model's device. */
static enum heed_status fetch(const struct heed_model *m, float *to, struct mat table, int rows,
                              struct heed_error *err)
{
    struct backend *be = m->p->be;
    pthread_mutex_lock(&m->engine->lock);
    be->op->download(be, to, table.p, (size_t)rows * table.cols * sizeof *to);
    enum heed_status status = be->op->sync(be, err);
    pthread_mutex_unlock(&m->engine->lock);
    return status;
}

/* Mean cosine of rows k apart. */
static void cosines_over_distance(double *out, const float *table, int rows, int d)
{
    for (int k = 0; k < rows; k++) {
        double sum = 0;
        for (int r = 0; r + k < rows; r++) {
            const float *a = table + (size_t)r * d, *b = a + (size_t)k * d;
            double lengths = sqrt(dot(a, a, d) * dot(b, b, d));
            sum += lengths > 0 ? dot(a, b, d) / lengths : 0;
        }
        out[k] = sum / (rows - k);
    }
}

static enum heed_status learned(struct study *s, const struct heed_model *m, int length,
                                struct heed_error *err)
{
    static const char *const stack[] = {"encoder", "decoder"};
    static const char *const title[] = {"Learned positions of the encoder",
                                        "Learned positions of the decoder"};
    const struct heed_config *c = &m->p->config;
    struct mat table[] = {m->p->w.embed.source.position, m->p->w.embed.target.position};
    double *curve = add_chart(s,
                              &(struct heed_chart){.title = "Mean cosine of two positions",
                                                   .x_label = "distance",
                                                   .y_label = "cosine",
                                                   .n = length,
                                                   .lines = 2,
                                                   .name = stack},
                              0, err);
    if (!curve) return HEED_ENOMEM;
    for (int i = 0; i < 2; i++, curve += length) {
        float *map = add_map(s,
                             &(struct heed_heat_map){.title = title[i],
                                                     .row = "position",
                                                     .col = "dimension",
                                                     .rows = length,
                                                     .cols = c->d_model},
                             err);
        enum heed_status status = map ? fetch(m, map, table[i], length, err) : HEED_ENOMEM;
        if (status) return status;
        cosines_over_distance(curve, map, length, c->d_model);
        if (length > 1)
            say(s, "Mean cosine of two positions in the %s: %.3f at distance 1, %.3f at %d.",
                stack[i], curve[1], curve[length / 2], length / 2);
    }
    say(s, "A learned table ends at position %d; there is no vector for a later one.",
        c->max_length - 1);
    return HEED_OK;
}

/* Length of each row of a table. */
static enum heed_status lengths(const struct heed_model *m, float *out, struct mat table,
                                struct heed_error *err)
{
    float *row = malloc((size_t)table.rows * table.cols * sizeof *row);
    if (!row) return error_memory(err, (size_t)table.rows * table.cols * sizeof *row, "vectors");
    enum heed_status status = fetch(m, row, table, table.rows, err);
    for (int i = 0; i < table.rows && !status; i++) {
        const float *v = row + (size_t)i * table.cols;
        out[i] = (float)sqrt(dot(v, v, table.cols));
    }
    free(row);
    return status;
}

/* Row l of the two maps is layer l, encoder layers first. */
static enum heed_status relative(struct study *s, const struct heed_model *m,
                                 struct heed_error *err)
{
    static const char *const title[] = {"Length of the vectors added to keys",
                                        "Length of the vectors added to values"};
    static const char *const name[] = {"keys, encoder", "values, encoder", "keys, decoder",
                                       "values, decoder"};
    const struct heed_config *c = &m->p->config;
    const struct weights *w = &m->p->w;
    int encoders = c->encoder_layers, layers = encoders + c->decoder_layers;
    int n = w->encoder[0].self.relative_k.rows, clip = n / 2;
    float *map[2];
    double *curve = add_chart(s,
                              &(struct heed_chart){.title = "Length of the vectors, mean of layers",
                                                   .x_label = "distance from query to key",
                                                   .y_label = "length",
                                                   .n = n,
                                                   .lines = 4,
                                                   .name = name},
                              -clip, err);
    for (int i = 0; i < 2; i++) {
        map[i] = add_map(s,
                         &(struct heed_heat_map){.title = title[i],
                                                 .row = "layer (encoder, then decoder)",
                                                 .col = "distance from query to key",
                                                 .first_row = 1,
                                                 .first_col = -clip,
                                                 .rows = layers,
                                                 .cols = n},
                         err);
        if (!map[i] || !curve) return HEED_ENOMEM;
    }
    for (int l = 0; l < layers; l++) {
        bool decoder = l >= encoders;
        const struct attention_weights *a =
            decoder ? &w->decoder[l - encoders].self : &w->encoder[l].self;
        struct mat table[] = {a->relative_k, a->relative_v};
        for (int i = 0; i < 2; i++) {
            float *row = map[i] + (size_t)l * n;
            double *mean = curve + (size_t)(2 * decoder + i) * n;
            enum heed_status status = lengths(m, row, table[i], err);
            if (status) return status;
            for (int k = 0; k < n; k++)
                mean[k] += (double)row[k] / (decoder ? c->decoder_layers : encoders);
        }
    }
    say(s, "Distances beyond %d share the vector of %d.", clip, clip);
    say(s, "The decoder never sees a key after the query: its vectors for distances above 0 are "
           "as they were before training.");
    return HEED_OK;
}

static enum heed_status alibi(struct study *s, const struct heed_config *c, int length,
                              struct heed_error *err)
{
    struct attention a = {.heads = c->heads, .alibi = true};
    s->name = calloc((size_t)c->heads, sizeof *s->name);
    s->names = calloc((size_t)c->heads, sizeof *s->names);
    if (!s->name || !s->names) return error_memory(err, (size_t)c->heads * 24, "names of heads");
    for (int h = 0; h < c->heads; h++) {
        snprintf(s->names[h], sizeof s->names[h], "head %d", h + 1);
        s->name[h] = s->names[h];
    }
    float *map = add_map(s,
                         &(struct heed_heat_map){.title = "What is added to a score",
                                                 .row = "head",
                                                 .col = "distance",
                                                 .first_row = 1,
                                                 .rows = c->heads,
                                                 .cols = length},
                         err);
    double *curve = map ? add_chart(s,
                                    &(struct heed_chart){.title = "What is added to a score",
                                                         .x_label = "distance",
                                                         .y_label = "added",
                                                         .n = length,
                                                         .lines = c->heads,
                                                         .name = s->name},
                                    0, err)
                        : NULL;
    if (!curve) return HEED_ENOMEM;
    for (int h = 0; h < c->heads; h++)
        for (int k = 0; k < length; k++)
            map[h * length + k] = (float)(curve[h * length + k] = -attention_slope(&a, h) * k);
    say(s, "The slope of head h of %d is 2^(-8h/%d): from %.4g in head 1 to %.4g in head %d.",
        c->heads, c->heads, attention_slope(&a, 0), attention_slope(&a, c->heads - 1), c->heads);
    return HEED_OK;
}

/* ---- all kinds ---- */

static enum heed_status fill(struct study *s, const struct heed_model *m, int d_model, int length,
                             struct heed_error *err)
{
    static const char *const kind[] = {"sinusoid", "learned", "rope", "relative", "alibi", "none"};
    const struct heed_config *c = m ? &m->p->config : NULL;
    int d = c ? c->d_model : d_model;
    s->p.kind = c ? c->position : HEED_POSITION_SINUSOID;
    if (s->p.kind == HEED_POSITION_ROPE) d = config_d_k(c);
    snprintf(s->title, sizeof s->title, "Positions: %s, %d dimensions%s", kind[s->p.kind], d,
             s->p.kind == HEED_POSITION_ROPE ? " a head" : "");
    switch (s->p.kind) {
    case HEED_POSITION_SINUSOID:
    case HEED_POSITION_ROPE:
        return waves(s, s->p.kind, d, length, err);
    case HEED_POSITION_LEARNED:
        return learned(s, m, int_min(length, c->max_length), err);
    case HEED_POSITION_RELATIVE:
        return relative(s, m, err);
    case HEED_POSITION_ALIBI:
        return alibi(s, c, length, err);
    case HEED_POSITION_NONE:
        break;
    }
    say(s, "This model has no positions: to its encoder a sentence is a bag of tokens.");
    return HEED_OK;
}

enum heed_status heed_positions_of(const struct heed_model *m, int d_model, int length,
                                   struct heed_positions **out, struct heed_error *err)
{
    if (!out) return error_null(err, "out");
    if (!m && (d_model < 2 || d_model > WIDTH_MAX || d_model % 2))
        return error_set(err, HEED_EARG, "d_model is %d, expected an even number from 2 to %d",
                         d_model, WIDTH_MAX);
    if (length && (length < LENGTH_MIN || length > LENGTH_MAX))
        return error_set(err, HEED_EARG, "length is %d, expected %d to %d, or 0", length,
                         LENGTH_MIN, LENGTH_MAX);
    struct study *s = calloc(1, sizeof *s);
    if (!s) return error_memory(err, sizeof *s, "positions");
    s->p.title = s->title;
    s->p.said = s->said;
    s->p.map = s->map;
    s->p.chart = s->chart;
    struct c_locale locale = c_locale_enter(); /* for the numbers in sentences */
    enum heed_status status = fill(s, m, d_model, length ? length : LENGTH, err);
    c_locale_leave(locale);
    if (status)
        heed_positions_free(&s->p);
    else
        *out = &s->p;
    return status;
}
