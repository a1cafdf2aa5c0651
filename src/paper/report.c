/*
 * report.c - the report of a study; see report.h.
 */
#include "paper/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/locale.h"

const char *report_count(char out[REPORT_COUNT], double n)
{
    char digits[REPORT_COUNT];
    int len = snprintf(digits, sizeof digits, "%.0f", n), k = 0;
    for (int i = 0; i < len && k < REPORT_COUNT - 2; i++) {
        if (i && (len - i) % 3 == 0) out[k++] = ',';
        out[k++] = digits[i];
    }
    out[k] = '\0';
    return out;
}

void report_cell(FILE *md, double x, int decimals)
{
    if (isfinite(x))
        fprintf(md, "| %.*f ", decimals, x);
    else
        fputs("| - ", md);
}

static enum heed_status write_text(const struct heed_study *s, const char *file, const char *text,
                                   size_t len, struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    enum heed_status st = file_join(path, sizeof path, s->o.out, file, err);
    if (!st) st = file_write(path, &(struct file_part){text, len}, 1, err);
    return st;
}

/* What a picture says of its origin. */
enum { NOTE = 256 };
static void note_of(const struct heed_study *s, char note[NOTE])
{
    const char *device = json_string_value(json_object_get(s->settings, "device"));
    snprintf(note, NOTE, "heed reproduce %s, %s", s->x->name, device ? device : "");
}

static enum heed_status write_picture(const struct heed_study *s, FILE *md, const char *file,
                                      const char *heading, const char *svg, struct heed_error *err)
{
    enum heed_status st = write_text(s, file, svg, strlen(svg), err);
    if (!st) fprintf(md, "![%s](%s)\n\n", heading, file);
    return st;
}

enum heed_status report_curves(struct heed_study *s, FILE *md, const char *file,
                               const struct curves *panel, int n, const char *heading,
                               struct heed_error *err)
{
    char note[NOTE], *svg = NULL;
    note_of(s, note);
    enum heed_status st = curves_picture(panel, n, heading, note, &svg, err);
    if (!st) st = write_picture(s, md, file, heading, svg, err);
    free(svg);
    return st;
}

enum heed_status report_bars(struct heed_study *s, FILE *md, const char *file,
                             const struct bars *bars, struct heed_error *err)
{
    char note[NOTE], *svg = NULL;
    struct bars noted = *bars;
    note_of(s, note);
    noted.note = note;
    enum heed_status st = bars_picture(&noted, &svg, err);
    if (!st) st = write_picture(s, md, file, bars->heading, svg, err);
    free(svg);
    return st;
}

/* A value of study.json, as a user would write it. */
static void write_value(FILE *md, const json_t *x)
{
    if (json_is_string(x))
        fputs(json_string_value(x), md);
    else if (json_is_integer(x))
        fprintf(md, "%" JSON_INTEGER_FORMAT, json_integer_value(x));
    else if (json_is_real(x))
        fprintf(md, "%g", json_real_value(x));
    else
        fputs(json_is_true(x) ? "true" : "false", md);
}

static void write_head(const struct heed_study *s, FILE *md)
{
    const char *command = json_string_value(json_object_get(s->settings, "command"));
    int finished = 0;
    for (int i = 0; i < s->rows; i++) finished += s->row[i].result != NULL;
    fprintf(md, "# %s\n\n", s->x->title);
    fprintf(
        md,
        "Written by heed %s; every number of the run below is in `study.json` or `rows/*.json` of "
        "its directory.\n\n",
        heed_version());
    if (command && *command)
        fprintf(md, "    %s\n\nOne row: the same command with `--rows NAME`.\n\n", command);
    fputs("<details><summary>Options of all rows</summary>\n\n| option | value |\n|---|---|\n", md);
    const char *key;
    json_t *value;
    json_object_foreach (s->settings, key, value) {
        if (strcmp(key, "command") == 0 || strcmp(key, "study") == 0) continue;
        fprintf(md, "| %s | ", key);
        write_value(md, value);
        fputs(" |\n", md);
    }
    fputs("\n</details>\n\n", md);
    if (finished == s->rows) return;
    fprintf(md, "%d of %d rows are finished; the same command goes on. Missing:", finished,
            s->rows);
    const char *comma = " ";
    for (int i = 0; i < s->rows; i++) {
        if (s->row[i].result) continue;
        fprintf(md, "%s%s", comma, s->row[i].name);
        comma = ", ";
    }
    fputs(".\n\n", md);
}

enum heed_status report_write(struct heed_study *s, struct heed_error *err)
{
    char *text = NULL;
    size_t len = 0;
    FILE *md = open_memstream(&text, &len);
    if (!md) return error_memory(err, 1024, "the report");
    struct c_locale locale = c_locale_enter();
    write_head(s, md);
    enum heed_status st = s->x->report(s, md, err);
    c_locale_leave(locale);
    bool bad = ferror(md) != 0;
    if (fclose(md) || bad) st = st ? st : error_memory(err, len, "the report");
    if (!st) st = write_text(s, "report.md", text, len, err);
    free(text);
    return st;
}
