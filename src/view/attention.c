/*
 * attention.c - heed_attention_picture: checks what is asked for and chooses the drawing.
 */
#include "view/attention.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/locale.h"

float attention_weight(const struct heed_attention_map *m, int layer, int head, int query, int key)
{
    size_t map = (size_t)m->queries * m->keys, cell = (size_t)query * m->keys + key;
    const float *w = m->weight + (size_t)layer * m->heads * map + cell;
    if (head >= 0) return w[head * map];
    float sum = 0;
    for (int h = 0; h < m->heads; h++) sum += w[h * map];
    return sum / (float)m->heads;
}

const char *attention_label(const char *piece)
{
    static const char space[] = "\xe2\x96\x81";
    size_t n = sizeof space - 1;
    return strncmp(piece, space, n) == 0 && piece[n] ? piece + n : piece;
}

const char *attention_use_name(enum heed_attention_use use)
{
    static const char *const name[] = {[HEED_USE_ENCODER] = "self-attention of the encoder",
                                       [HEED_USE_DECODER] = "self-attention of the decoder",
                                       [HEED_USE_CROSS] = "cross-attention",
                                       [HEED_USES] = "attention"};
    return name[use];
}

const char *attention_query_side(enum heed_attention_use use)
{
    return use == HEED_USE_ENCODER ? "source" : "translation";
}

const char *attention_key_side(enum heed_attention_use use)
{
    return use == HEED_USE_DECODER ? "translation" : "source";
}

void attention_title(char out[ATTENTION_TITLE], const struct heed_attention *a,
                     const struct heed_attention_view *v)
{
    int n = snprintf(out, ATTENTION_TITLE, "%s", attention_use_name(v->use));
    if (v->drawing == HEED_DRAW_GRID) {
        snprintf(out + n, ATTENTION_TITLE - (size_t)n, " in every layer and head");
        return;
    }
    const struct heed_attention_map *m = &a->map[v->use];
    n += snprintf(out + n, ATTENTION_TITLE - (size_t)n, ", layer %d of %d, ", v->layer + 1,
                  m->layers);
    if (v->head >= 0)
        snprintf(out + n, ATTENTION_TITLE - (size_t)n, "head %d of %d", v->head + 1, m->heads);
    else
        snprintf(out + n, ATTENTION_TITLE - (size_t)n, "%s %d heads",
                 v->drawing == HEED_DRAW_LINES ? "all" : "mean of", m->heads);
}

/* ---- the public function ---- */

static enum heed_status check_view(const struct heed_attention *a,
                                   const struct heed_attention_view *v, struct heed_error *err)
{
    bool grid = v->drawing == HEED_DRAW_GRID;
    if ((int)v->drawing < 0 || v->drawing > HEED_DRAW_GRID)
        return error_set(err, HEED_EARG, "drawing is %d, expected 0 to %d", (int)v->drawing,
                         HEED_DRAW_GRID);
    if ((int)v->use < 0 || (int)v->use >= HEED_USES + grid)
        return error_set(err, HEED_EARG, "use is %d, expected 0 to %d", (int)v->use,
                         HEED_USES - 1 + grid);
    if (grid) return HEED_OK;
    const struct heed_attention_map *m = &a->map[v->use];
    if (v->layer < 0 || v->layer >= m->layers)
        return error_set(err, HEED_EARG, "layer is %d, expected 0 to %d", v->layer, m->layers - 1);
    if (v->head < -1 || v->head >= m->heads)
        return error_set(err, HEED_EARG, "head is %d, expected 0 to %d, or -1 for all of them",
                         v->head, m->heads - 1);
    return HEED_OK;
}

static enum heed_status check(const struct heed_attention *a, enum heed_picture kind,
                              const struct heed_attention_view *v, struct heed_error *err)
{
    if (!a) return error_null(err, "attention");
    if (!v) return error_null(err, "view");
    if ((int)kind < 0 || kind > HEED_PICTURE_HTML)
        return error_set(err, HEED_EARG, "kind of picture is %d, expected 0 to %d", (int)kind,
                         HEED_PICTURE_HTML);
    if (kind == HEED_PICTURE_JSON) return HEED_OK;
    if (kind == HEED_PICTURE_TERMINAL && v->drawing == HEED_DRAW_LINES)
        return error_set(err, HEED_EARG, "a terminal shows no lines, expected a map or a grid");
    return check_view(a, v, err);
}

static enum heed_status draw_svg(const struct heed_attention *a,
                                 const struct heed_attention_view *v, char **out,
                                 struct heed_error *err)
{
    switch (v->drawing) {
    case HEED_DRAW_LINES:
        return attention_svg_lines(a, v, out, err);
    case HEED_DRAW_GRID:
        return attention_svg_grid(a, v, out, err);
    default:
        return attention_svg_map(a, v, out, err);
    }
}

static enum heed_status draw_text(const struct heed_attention *a, enum heed_picture kind,
                                  const struct heed_attention_view *v, char **out,
                                  struct heed_error *err)
{
    size_t n;
    char *text = NULL;
    FILE *f = open_memstream(&text, &n);
    struct c_locale locale = c_locale_enter();
    if (f && kind == HEED_PICTURE_TERMINAL)
        attention_terminal(f, a, v);
    else if (f && kind == HEED_PICTURE_JSON)
        attention_json(f, a);
    else if (f)
        attention_page(f, a, v);
    c_locale_leave(locale);
    bool bad = !f || ferror(f);
    if (f && fclose(f)) bad = true;
    if (bad) {
        free(text);
        return error_set(err, HEED_ENOMEM, "out of memory: a picture of attention");
    }
    *out = text;
    return HEED_OK;
}

enum heed_status heed_attention_picture(const struct heed_attention *a, enum heed_picture kind,
                                        const struct heed_attention_view *view, char **out,
                                        struct heed_error *err)
{
    enum heed_status status = out ? check(a, kind, view, err) : error_null(err, "out");
    if (status) return status;
    return kind == HEED_PICTURE_SVG ? draw_svg(a, view, out, err)
                                    : draw_text(a, kind, view, out, err);
}
