/*
 * translator.h - a model at work, as `heed translate` and `heed evaluate` use it: their common
 * options, lines in, results out, how far it is.
 *
 * Call order: translator_init, translator_options, options_parse, translator_check_options;
 * translator_open, translator_run..., translator_progress_end, translator_verdict,
 * translator_close.
 */
#ifndef HEED_CLI_TRANSLATOR_H
#define HEED_CLI_TRANSLATOR_H
#include "cli/default_model.h"
#include "cli/options.h"
#include "heed.h"

struct translator {
    /* by the options */
    const char *dir, *device, *weights;
    struct heed_translate_options o;
    const char *prefix;
    struct words required, banned;
    int threads;
    int64_t seed;
    bool quiet;
    struct {
        bool beam, nbest, min_length, max_length, no_repeat_ngram, temperature, top_k, top_p, seed;
    } given;
    /* while open */
    char default_dir[CLI_PATH_MAX];
    char languages[256]; /* to be told by --to or by a tag before each line; empty: there is one */
    struct heed_engine *engine;
    struct heed_model *model;
    struct heed_session *session;
    struct heed_wish *wish;     /* [TRANSLATOR_BLOCK] the same for each line */
    struct heed_result *result; /* [TRANSLATOR_BLOCK][nbest] */
    const char **line;          /* [TRANSLATOR_BLOCK] what is translated of the lines of a call */
    bool tagged;                /* a line before had the tag of a language */
    bool progress;              /* shown on stderr */
    double start;
    int64_t lines, tokens; /* so far; of the best translations */
    int64_t refused;       /* lines that could not be translated */
};

enum {
    TRANSLATOR_OPTIONS = 15,
    TRANSLATOR_LINE_OPTIONS = 4,
    TRANSLATOR_BLOCK = 1024 /* most lines of a call: the more to choose from, the faster */
};

/* The defaults. */
void translator_init(struct translator *t);
/* Entries of an option table that set t: TRANSLATOR_OPTIONS of them, and TRANSLATOR_LINE_OPTIONS
 * for commands that translate lines. */
void translator_options(struct translator *t, struct option *out);
void translator_line_options(struct translator *t, struct option *out);
/* Whether every option that was given has an effect. scored: the option by which a translation is
 * given and not searched for, or NULL. */
int translator_check_options(const struct translator *t, const char *scored);

/* These return an exit code, after a sentence where it is not CLI_DONE. The close accepts what was
 * never opened. */
int translator_open(struct translator *t);
void translator_close(struct translator *t);

/* Whether it is known which language to translate the lines to: by --to, or by a tag before the
 * first of them that is not blank. */
int translator_check(struct translator *t, const char *const *line, int n);
/* Translates n lines, at most TRANSLATOR_BLOCK: (*out)[n * nbest] as of heed_translate, valid until
 * the next call. Where given is not NULL, its lines are scored as translations instead. A line that
 * cannot be translated is named on stderr, and its result says so too. */
int translator_run(struct translator *t, const char *const *line, const char *const *given, int n,
                   const struct heed_result **out);
/* At the end: CLI_DONE, or CLI_FAILURE after a sentence where lines could not be translated. */
int translator_verdict(const struct translator *t);
/* Seconds since the model was loaded. */
double translator_seconds(const struct translator *t);
/* The line of progress stays as it is, and what follows goes below it. */
void translator_progress_end(struct translator *t);

#endif
