/*
 * attention_json.c - attention as JSON: for --json with all digits, and for the page in
 * thousandths.
 *
 * {"align_layer": 5, "encoder": {"layers": 6, "heads": 8, "queries": [..], "keys": [..],
 *  "weights": [layer][head][query][key]}, "decoder": {..}, "cross": {..}}
 */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "view/attention.h"

/* Characters that a page would take for markup or for the end of a line. */
static bool markup(int32_t c)
{
    return c == '<' || c == '>' || c == '&' || c == 0x2028 || c == 0x2029;
}

static void write_string(FILE *f, const char *text, bool in_page)
{
    fputc('"', f);
    size_t n;
    for (size_t left = strlen(text); left; text += n, left -= n) {
        int32_t c = 0;
        n = utf8_next(text, left, &c);
        if (n == 0) {
            n = 1;
            fputs(UTF8_REPLACEMENT, f);
        } else if (c < ' ' || c == '"' || c == '\\' || c == 0x7f || (in_page && markup(c))) {
            fprintf(f, "\\u%04x", (unsigned)c);
        } else {
            fwrite(text, 1, n, f);
        }
    }
    fputc('"', f);
}

static void write_tokens(FILE *f, const char *name, const char *const *piece, int n, bool in_page)
{
    fprintf(f, ",\"%s\":[", name);
    for (int i = 0; i < n; i++) {
        if (i) fputc(',', f);
        write_string(f, piece[i], in_page);
    }
    fputc(']', f);
}

static void write_weight(FILE *f, double w, bool in_page)
{
    if (in_page)
        fprintf(f, "%ld", lround(w * 1000));
    else
        fprintf(f, "%.9g", w);
}

static void write_map(FILE *f, const char *name, const struct heed_attention_map *m, bool in_page)
{
    fprintf(f, ",\n\"%s\":{\"layers\":%d,\"heads\":%d", name, m->layers, m->heads);
    write_tokens(f, "queries", m->query, m->queries, in_page);
    write_tokens(f, "keys", m->key, m->keys, in_page);
    fputs(",\n\"weights\":[", f);
    for (int l = 0; l < m->layers; l++) {
        fputs(l ? ",[" : "[", f);
        for (int h = 0; h < m->heads; h++) {
            fputs(h ? ",[" : "[", f);
            for (int q = 0; q < m->queries; q++) {
                fputs(q ? ",[" : "[", f);
                for (int k = 0; k < m->keys; k++) {
                    if (k) fputc(',', f);
                    write_weight(f, (double)attention_weight(m, l, h, q, k), in_page);
                }
                fputc(']', f);
            }
            fputs("]\n", f);
        }
        fputc(']', f);
    }
    fputs("]}", f);
}

static void write_maps(FILE *f, const struct heed_attention *a, bool in_page)
{
    write_map(f, "encoder", &a->map[HEED_USE_ENCODER], in_page);
    write_map(f, "decoder", &a->map[HEED_USE_DECODER], in_page);
    write_map(f, "cross", &a->map[HEED_USE_CROSS], in_page);
    fputs("}\n", f);
}

void attention_json(FILE *f, const struct heed_attention *a)
{
    fprintf(f, "{\"align_layer\":%d", a->align_layer + 1);
    write_maps(f, a, false);
}

void attention_json_view(FILE *f, const struct heed_attention *a,
                         const struct heed_attention_view *v)
{
    static const char *const use[] = {"encoder", "decoder", "cross", "cross"};
    static const char *const drawing[] = {"map", "lines", "grid"};
    fprintf(f,
            "{\"version\":\"%s\",\"show\":{\"kind\":\"%s\",\"layer\":%d,\"head\":%d,\"drawing\":\"%"
            "s\"}",
            heed_version(), use[v->use], v->layer + 1, v->head + 1, drawing[v->drawing]);
    write_maps(f, a, true);
}
