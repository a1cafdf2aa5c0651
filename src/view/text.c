/*
 * text.c - see text.h.
 */
#include "view/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"

void text_begin(struct text_out *t)
{
    *t = (struct text_out){.locale = c_locale_enter()};
    t->to = open_memstream(&t->text, &t->n);
}

enum heed_status text_end(struct text_out *t, char **out, struct heed_error *err)
{
    bool bad = !t->to || ferror(t->to);
    if (t->to && fclose(t->to)) bad = true;
    c_locale_leave(t->locale);
    if (bad) {
        free(t->text);
        return error_set(err, HEED_ENOMEM, "out of memory: a picture in characters");
    }
    *out = t->text;
    return HEED_OK;
}

void text_json_string(FILE *to, const char *text)
{
    fputc('"', to);
    for (size_t n, left = strlen(text); left; text += n, left -= n) {
        n = utf8_char(text, left);
        if (n == 0) {
            fputs(UTF8_REPLACEMENT, to);
            n = 1;
        } else if (*text == '"' || *text == '\\') {
            fprintf(to, "\\%c", *text);
        } else if ((unsigned char)*text < ' ') {
            fprintf(to, "\\u%04x", *text);
        } else {
            fwrite(text, 1, n, to);
        }
    }
    fputc('"', to);
}

void text_json_number(FILE *to, double value)
{
    if (isfinite(value))
        fprintf(to, "%.7g", value);
    else
        fputs("null", to);
}

void text_json_floats(FILE *to, const float *value, size_t n)
{
    fputc('[', to);
    for (size_t i = 0; i < n; i++) {
        if (i) fputs(", ", to);
        text_json_number(to, (double)value[i]);
    }
    fputc(']', to);
}

void text_json_doubles(FILE *to, const double *value, size_t n)
{
    fputc('[', to);
    for (size_t i = 0; i < n; i++) {
        if (i) fputs(", ", to);
        text_json_number(to, value[i]);
    }
    fputc(']', to);
}

void text_visible(FILE *to, const char *text)
{
    for (size_t n, left = strlen(text); left; text += n, left -= n) {
        size_t control = utf8_control(text, left);
        n = control ? control : 1;
        if (control)
            fputs(UTF8_REPLACEMENT, to);
        else
            fputc(*text, to);
    }
}

void text_bar(FILE *to, double value, int columns)
{
    int eighths = (int)lrint(fmin(fmax(value, 0), 1) * columns * 8);
    for (; eighths >= 8; eighths -= 8) fputs("\xe2\x96\x88", to);
    /* U+258F is the block of one eighth, U+2589 that of seven */
    if (eighths) fprintf(to, "\xe2\x96%c", 0x90 - eighths);
}
