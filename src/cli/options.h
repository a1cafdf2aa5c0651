/*
 * options.h - a table of options per command, which parses the arguments and prints the help, so
 * that the two cannot differ.
 *
 * Call order: fill the variables with their defaults, point a table at them, options_parse.
 */
#ifndef HEED_CLI_OPTIONS_H
#define HEED_CLI_OPTIONS_H
#include <stdbool.h>
#include <stdint.h>

#include "heed.h"

/* Words of the command line; they point into argv. {0} is empty. */
struct words {
    const char **v;
    int n;
};
void words_release(struct words *w);

/* One line of the table. Exactly one of the pointers is set: it says what kind of option this is
 * and where its value goes. What it points at before parsing is the default, which the help shows,
 * with the range of a number; a number outside [min, max] means that there is no default. Options
 * may be given once, except words and flags. An entry without a name is a heading of the help. */
struct option {
    const char *name; /* without the dashes */
    const char *arg;  /* what the help calls the value */
    const char *help;
    bool *flag;
    int *integer;
    int64_t *integer64;
    float *number;
    const char **string;
    struct words *words;                   /* may be given more than once */
    double min, max;                       /* of a number, both allowed */
    const char *choices;                   /* of a string: "one|two|three" */
    const struct heed_config_field *field; /* of a string: it is a value of this field, which says
                                            * what is allowed and what the help calls the value */
    bool clears;                           /* this flag sets its variable to false */
    bool required;
    bool *given; /* set to true where the user gives a value; may be NULL */
};

struct usage {
    const char *command, *summary;
    const char *synopsis; /* after "heed COMMAND " */
    const char *about;    /* more for the help, or NULL */
    const char *example;  /* whole commands, one a line */
    const struct option *option;
    int n;
    struct words *rest;    /* arguments that are not options; NULL: there are none */
    const char *rest_name; /* what the help calls one */
    int rest_min;
};

enum { OPTIONS_GO_ON = -1 };

/* Takes the arguments of main. OPTIONS_GO_ON, or the exit code to leave with: help was printed, or
 * a sentence about what is wrong. */
int options_parse(const struct usage *u, int argc, char **argv);

#endif
