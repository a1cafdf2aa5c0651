/*
 * options.c - parses a command's arguments by its table, and prints the table as its help.
 *
 * `--name value`, `--name=value`, `--flag`; `--` ends the options; `--help` and `-h` in every
 * command. All checks of form are here: a command sees numbers within their range, choices that
 * exist and one value for each option that is not a list.
 */
#include "cli/options.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "heed.h"

enum { NAME_MAX_BYTES = 128 }; /* of what the help calls a value */

void words_release(struct words *w)
{
    free(w->v);
    *w = (struct words){0};
}

static int words_add(struct words *w, const char *word)
{
    const char **v = realloc(w->v, (size_t)(w->n + 1) * sizeof *v);
    if (!v) return cli_failure("out of memory");
    w->v = v;
    w->v[w->n++] = word;
    return OPTIONS_GO_ON;
}

/* ---- help ---- */

static bool in_range(const struct option *o, double x)
{
    return x >= o->min && x <= o->max;
}

/* Adds a remark to those in parentheses behind an option's help: " (1 to 64, default 4)". */
__attribute__((format(printf, 3, 4))) static void remark(char *out, size_t size, const char *format,
                                                         ...)
{
    size_t n = strlen(out);
    n += (size_t)snprintf(out + n, size - n, n ? ", " : " (");
    va_list ap;
    va_start(ap, format);
    vsnprintf(out + n, size - n, format, ap);
    va_end(ap);
}

static bool is_number(const struct option *o)
{
    return o->integer || o->integer64 || o->number;
}

/* Whether the option takes no value: being given says it all. */
static bool takes_no_value(const struct option *o)
{
    return o->flag || (o->field && o->field->type == HEED_FIELD_SWITCH);
}

/* What may stand for a value in a sentence or in the help: "N", "FILE", "relu|gelu"; NULL: the
 * option takes no value. */
static const char *value_name(const struct option *o, char out[NAME_MAX_BYTES])
{
    if (!o->field) return o->choices ? o->choices : o->arg;
    switch (o->field->type) {
    case HEED_FIELD_INTEGER:
        return "N";
    case HEED_FIELD_RATE:
        return "RATE";
    case HEED_FIELD_SWITCH:
        return NULL;
    case HEED_FIELD_KIND:
        break;
    }
    size_t n = 0;
    for (const char *const *k = o->field->kinds; *k && n < NAME_MAX_BYTES; k++) {
        n += (size_t)snprintf(out + n, NAME_MAX_BYTES - n, "%s%s", n ? "|" : "", *k);
    }
    return out;
}

static void field_remarks(const struct heed_config_field *f, char *out, size_t size)
{
    if (f->type == HEED_FIELD_INTEGER) remark(out, size, "%d to %d", f->min, f->max);
    if (f->type == HEED_FIELD_RATE) remark(out, size, "at least 0, less than 1");
    if (f->absent && f->type != HEED_FIELD_SWITCH) remark(out, size, "default %s", f->absent);
}

static void remarks(const struct option *o, char *out, size_t size)
{
    const double no_limit = 1e9; /* larger limits are left out of the help; errors name them */
    if (is_number(o) && o->max < no_limit) {
        remark(out, size, "%.10g to %.10g", o->min, o->max);
    } else if (is_number(o)) {
        remark(out, size, "at least %.10g", o->min);
    }
    if (o->field) field_remarks(o->field, out, size);
    if (o->words) remark(out, size, "repeatable");
    if (o->required) remark(out, size, "required");
    if (o->integer && in_range(o, *o->integer)) {
        remark(out, size, "default %d", *o->integer);
    } else if (o->integer64 && in_range(o, (double)*o->integer64)) {
        remark(out, size, "default %lld", (long long)*o->integer64);
    } else if (o->number && in_range(o, *o->number)) {
        remark(out, size, "default %g", (double)*o->number);
    } else if (o->string && *o->string) {
        remark(out, size, "default %s", *o->string);
    }
    if (*out) strncat(out, ")", size - strlen(out) - 1);
}

static void print_option(const struct option *o)
{
    enum { COLUMN = 28, WIDTH = 100 };
    if (!o->name) {
        printf("\n%s:\n", o->help);
        return;
    }
    char name[NAME_MAX_BYTES];
    const char *arg = value_name(o, name);
    int n = printf("  --%s%s%s", o->name, arg ? " " : "", arg ? arg : "");
    if (n < COLUMN) {
        printf("%*s", COLUMN - n, "");
    } else {
        printf("\n%*s", COLUMN, "");
    }
    char behind[128] = "";
    remarks(o, behind, sizeof behind);
    fputs(o->help, stdout);
    if (COLUMN + strlen(o->help) + strlen(behind) > WIDTH) printf("\n%*s", COLUMN - 1, "");
    puts(behind);
}

static int print_help(const struct usage *u)
{
    printf("heed %s - %s\n\nusage: heed %s %s\n", u->command, u->summary, u->command, u->synopsis);
    if (u->about) printf("\n%s\n", u->about);
    if (u->n && u->option[0].name) puts("\noptions:");
    for (int i = 0; i < u->n; i++) print_option(&u->option[i]);
    printf("\nexample:\n%s\n", u->example);
    return cli_flush();
}

/* ---- parsing ---- */

/* The choice that was probably meant, or "". */
static void nearest_choice(const char *choices, const char *value, char out[NAME_MAX_BYTES])
{
    out[0] = '\0';
    for (const char *c = choices; *c;) {
        int len = (int)strcspn(c, "|");
        char choice[NAME_MAX_BYTES];
        snprintf(choice, sizeof choice, "%.*s", len, c);
        if (heed_nearer(value, *out ? out : NULL, choice) == choice) {
            memcpy(out, choice, sizeof choice);
        }
        c += len + (c[len] == '|');
    }
}

static int bad_value(const struct option *o, const char *value)
{
    if (o->choices) {
        char guess[NAME_MAX_BYTES];
        nearest_choice(o->choices, value, guess);
        return cli_misuse("--%s is '%s', expected one of %s%s%s%s", o->name, value, o->choices,
                          *guess ? "; did you mean " : "", guess, *guess ? "?" : "");
    }
    if (o->number) {
        return cli_misuse("--%s is '%s', expected a number from %.10g to %.10g", o->name, value,
                          o->min, o->max);
    }
    return cli_misuse("--%s is '%s', expected a whole number from %.0f to %.0f", o->name, value,
                      o->min, o->max);
}

static int set_integer(const struct option *o, const char *value)
{
    char *end;
    errno = 0;
    long long x = strtoll(value, &end, 10);
    if (end == value || *end || errno || !in_range(o, (double)x)) return bad_value(o, value);
    if (o->integer) {
        *o->integer = (int)x;
    } else {
        *o->integer64 = x;
    }
    return OPTIONS_GO_ON;
}

static int set_number(const struct option *o, const char *value)
{
    char *end;
    errno = 0;
    double x = strtod(value, &end);
    /* strtod reports an underflow as an error as well; 1e-400 is then as good as 0 */
    bool overflow = errno == ERANGE && fabs(x) > 1;
    if (end == value || *end || overflow || !in_range(o, x)) return bad_value(o, value);
    *o->number = (float)x;
    return OPTIONS_GO_ON;
}

static bool is_choice(const char *choices, const char *value)
{
    size_t n = strlen(value);
    for (const char *c = choices; *c;) {
        size_t len = strcspn(c, "|");
        if (len == n && memcmp(c, value, n) == 0) return true;
        c += len + (c[len] == '|');
    }
    return false;
}

/* Whether the library would take the value; it is set once the whole command line is known. */
static int check_field(const struct option *o, const char *value)
{
    struct heed_config scratch = {0};
    struct heed_error err = {0};
    if (heed_config_set(&scratch, o->name, value, &err) == HEED_OK) return OPTIONS_GO_ON;
    return cli_misuse("--%s", err.text); /* which begins with the name */
}

static int set_value(const struct option *o, const char *value)
{
    if (o->integer || o->integer64) return set_integer(o, value);
    if (o->number) return set_number(o, value);
    if (o->words) return words_add(o->words, value);
    assert(o->string);
    if (o->choices && !is_choice(o->choices, value)) return bad_value(o, value);
    if (o->field) {
        int code = check_field(o, value);
        if (code != OPTIONS_GO_ON) return code;
    }
    *o->string = value;
    return OPTIONS_GO_ON;
}

static const struct option *find(const struct usage *u, const char *name, size_t len)
{
    for (int i = 0; i < u->n; i++) {
        const char *s = u->option[i].name;
        if (s && strlen(s) == len && memcmp(s, name, len) == 0) return &u->option[i];
    }
    return NULL;
}

static int unknown(const struct usage *u, const char *arg)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(arg, "="), arg);
    const char *word = name + strspn(name, "-"), *guess = NULL;
    for (int i = 0; i < u->n; i++) guess = heed_nearer(word, guess, u->option[i].name);
    if (guess) {
        return cli_misuse("%s has no option %s; did you mean --%s?", u->command, name, guess);
    }
    if (u->rest && arg[1] != '-') {
        return cli_misuse("%s has no option %s; put -- before a %s that begins with -", u->command,
                          arg, u->rest_name);
    }
    return cli_misuse("%s has no option %s; see heed %s --help", u->command, name, u->command);
}

/* The arguments, and how far they are parsed. */
struct parsing {
    const struct usage *u;
    int argc, at; /* argv[at] is the argument to parse */
    char **argv;
    const char **given; /* [u->n] the value of each option so far; NULL: none */
};

/* The option at argv[at], with its value; `at` moves to the last argument used. */
static int parse_option(struct parsing *p)
{
    const struct usage *u = p->u;
    const char *arg = p->argv[p->at];
    if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) return print_help(u);
    if (arg[1] != '-') return unknown(u, arg);
    size_t len = strcspn(arg + 2, "=");
    const struct option *o = find(u, arg + 2, len);
    if (!o) return unknown(u, arg);
    const char *value = arg[2 + len] ? arg + 2 + len + 1 : NULL;
    if (takes_no_value(o)) {
        if (value) return cli_misuse("--%s takes no value, found '%s'", o->name, value);
        if (!o->flag) return set_value(o, "true");
        *o->flag = !o->clears;
        return OPTIONS_GO_ON;
    }
    if (!value) {
        const char *next = p->at + 1 < p->argc ? p->argv[p->at + 1] : NULL;
        if (!next || strncmp(next, "--", 2) == 0) {
            char name[NAME_MAX_BYTES];
            return cli_misuse("--%s needs a value (%s), found %s", o->name, value_name(o, name),
                              next ? next : "nothing after it");
        }
        value = p->argv[++p->at];
    }
    const char **given = &p->given[o - u->option];
    if (*given && !o->words) {
        return cli_misuse("--%s is given twice, '%s' and '%s', expected once", o->name, *given,
                          value);
    }
    *given = value;
    if (o->given) *o->given = true;
    return set_value(o, value);
}

static int check_complete(const struct parsing *p)
{
    const struct usage *u = p->u;
    for (int i = 0; i < u->n; i++) {
        const struct option *o = &u->option[i];
        if (o->required && !p->given[i]) {
            return cli_misuse("%s needs --%s %s; see heed %s --help", u->command, o->name, o->arg,
                              u->command);
        }
    }
    if (u->rest && u->rest->n < u->rest_min) {
        return cli_misuse("%s needs at least %d %s after the options, found %d; see heed %s --help",
                          u->command, u->rest_min, u->rest_name, u->rest->n, u->command);
    }
    return OPTIONS_GO_ON;
}

static int parse(struct parsing *p)
{
    const struct usage *u = p->u;
    bool options = true;
    for (p->at = 2; p->at < p->argc; p->at++) {
        const char *arg = p->argv[p->at];
        int code;
        if (options && strcmp(arg, "--") == 0) {
            options = false;
            continue;
        }
        if (options && arg[0] == '-' && arg[1]) {
            code = parse_option(p);
        } else if (u->rest) {
            code = words_add(u->rest, arg);
        } else {
            code = cli_misuse("%s takes options only, found '%s'; see heed %s --help", u->command,
                              arg, u->command);
        }
        if (code != OPTIONS_GO_ON) return code;
    }
    return check_complete(p);
}

int options_parse(const struct usage *u, int argc, char **argv)
{
    struct parsing p = {.u = u, .argc = argc, .argv = argv};
    p.given = calloc((size_t)u->n, sizeof *p.given);
    if (!p.given) return cli_failure("out of memory");
    int code = parse(&p);
    free(p.given);
    return code;
}
