/*
 * options.c - parses a command's arguments by its table, and prints the table as its help.
 *
 * `--name value`, `--name=value`, `--flag`; `--` ends the options; `--help` and `-h` in every
 * command. All checks of form are here: a command sees numbers within their range and choices that
 * exist.
 */
#include "cli/options.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

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

/* " (default 4000)", or nothing where there is no default to show. */
static void print_default(const struct option *o)
{
    if (o->integer && in_range(o, *o->integer)) {
        printf(" (default %d)", *o->integer);
    } else if (o->integer64 && in_range(o, (double)*o->integer64)) {
        printf(" (default %lld)", (long long)*o->integer64);
    } else if (o->number && in_range(o, *o->number)) {
        printf(" (default %g)", *o->number);
    } else if (o->string && *o->string) {
        printf(" (default %s)", *o->string);
    }
}

static void print_option(const struct option *o)
{
    enum { COLUMN = 28 };
    if (!o->name) {
        printf("\n%s:\n", o->help);
        return;
    }
    const char *arg = o->choices ? o->choices : o->arg;
    int n = printf("  --%s%s%s", o->name, arg ? " " : "", arg ? arg : "");
    if (n < COLUMN) {
        printf("%*s", COLUMN - n, "");
    } else {
        printf("\n%*s", COLUMN, "");
    }
    fputs(o->help, stdout);
    print_default(o);
    puts(o->required ? " (required)" : "");
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

static int bad_value(const struct option *o, const char *value)
{
    if (o->choices) {
        return cli_misuse("--%s is '%s', expected one of %s", o->name, value, o->choices);
    }
    return cli_misuse("--%s is '%s', expected a %s from %.10g to %.10g", o->name, value,
                      o->number ? "number" : "whole number", o->min, o->max);
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

static int set_value(const struct option *o, const char *value)
{
    if (o->integer || o->integer64) return set_integer(o, value);
    if (o->number) return set_number(o, value);
    if (o->words) return words_add(o->words, value);
    assert(o->string);
    if (o->choices && !is_choice(o->choices, value)) return bad_value(o, value);
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
    if (u->rest && arg[1] != '-') {
        return cli_misuse("%s has no option %s; put -- before a %s that begins with -", u->command,
                          arg, u->rest_name);
    }
    snprintf(name, sizeof name, "%.*s", (int)strcspn(arg, "="), arg);
    struct suggestion near = {.word = name + strspn(name, "-")};
    for (int i = 0; i < u->n; i++) {
        if (u->option[i].name) suggestion_try(&near, u->option[i].name);
    }
    if (near.best) {
        return cli_misuse("%s has no option %s; did you mean --%s?", u->command, name, near.best);
    }
    return cli_misuse("%s has no option %s; see heed %s --help", u->command, name, u->command);
}

/* One option at argv[*i], with its value; *i moves to the last argument used. */
static int parse_one(const struct usage *u, int argc, char **argv, int *i)
{
    const char *arg = argv[*i];
    if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) return print_help(u);
    if (arg[1] != '-') return unknown(u, arg);
    size_t len = strcspn(arg + 2, "=");
    const struct option *o = find(u, arg + 2, len);
    if (!o) return unknown(u, arg);
    const char *value = arg[2 + len] ? arg + 2 + len + 1 : NULL;
    if (o->flag) {
        if (value) return cli_misuse("--%s takes no value, found '%s'", o->name, value);
        *o->flag = !o->clears;
        return OPTIONS_GO_ON;
    }
    if (!value) {
        const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
        if (!next || strncmp(next, "--", 2) == 0) {
            return cli_misuse("--%s needs a value (%s), found %s", o->name,
                              o->choices ? o->choices : o->arg, next ? next : "nothing after it");
        }
        value = argv[++*i];
    }
    return set_value(o, value);
}

static bool is_given(const struct option *o)
{
    return o->string    ? *o->string != NULL
           : o->words   ? o->words->n > 0
           : o->integer ? in_range(o, *o->integer)
                        : true;
}

static int check_complete(const struct usage *u)
{
    for (int i = 0; i < u->n; i++) {
        const struct option *o = &u->option[i];
        if (o->required && !is_given(o)) {
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

int options_parse(const struct usage *u, int argc, char **argv)
{
    bool options = true;
    for (int i = 2; i < argc; i++) {
        int code;
        if (options && strcmp(argv[i], "--") == 0) {
            options = false;
            continue;
        }
        if (options && argv[i][0] == '-' && argv[i][1]) {
            code = parse_one(u, argc, argv, &i);
        } else if (u->rest) {
            code = words_add(u->rest, argv[i]);
        } else {
            code = cli_misuse("%s takes options only, found '%s'; see heed %s --help", u->command,
                              argv[i], u->command);
        }
        if (code != OPTIONS_GO_ON) return code;
    }
    return check_complete(u);
}
