/*
 * translator.h - what `heed translate`, `heed evaluate` and `heed attention` have in common: their
 * options, the model and its session, the translation of lines, a line of progress.
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
    struct heed_translate_options o; /* of every line */
    struct heed_session_options session_options;
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
    struct heed_request *request; /* [TRANSLATOR_BLOCK] of the lines of a call */
    struct heed_answer *answer;   /* [TRANSLATOR_BLOCK] */
    bool tagged;                  /* a line before had the tag of a language */
    bool progress;                /* shown on stderr */
    double start;
    int64_t checked;       /* lines that translator_check has seen */
    int64_t lines, tokens; /* lines so far, and the tokens of their best translations */
    int64_t refused;       /* lines that could not be translated */
};

enum {
    TRANSLATOR_OPTIONS = 15,
    TRANSLATOR_LINE_OPTIONS = 4,
    TRANSLATOR_BLOCK = 1024 /* most lines of a call; many lines share every decoding step */
};

/* Sets the defaults. */
void translator_init(struct translator *t);
/* Entries of an option table that set t: TRANSLATOR_OPTIONS of them, and TRANSLATOR_LINE_OPTIONS
 * for commands that translate lines. */
void translator_options(struct translator *t, struct option *out);
void translator_line_options(struct translator *t, struct option *out);
/* CLI_DONE where every option that was given has an effect; else CLI_MISUSE after a sentence.
 * scored: the option that gives translations to be scored instead of searching, or NULL. */
int translator_check_options(const struct translator *t, const char *scored);

/* translator_open returns an exit code, after a sentence where it is not CLI_DONE. A translator
 * that was never opened can be closed. */
int translator_open(struct translator *t);
void translator_close(struct translator *t);

/* Whether it is known which language to translate the lines to: by --to, or by a tag at the front
 * of the first line that is not blank. */
int translator_check(struct translator *t, const char *const *line, int n);
/* What a line is translated by; the caller sets `given`. */
struct heed_request translator_request(const struct translator *t, const char *line);
/* Translates n lines, at most TRANSLATOR_BLOCK: (*out)[n] as of heed_translate, valid until the
 * next call. Where given is not NULL, its lines are scored as translations instead. A line that
 * cannot be translated is named on stderr, and its answer says so too. */
int translator_run(struct translator *t, const char *const *line, const char *const *given, int n,
                   const struct heed_answer **out);
/* The parts of translator_run, for lines that another process translates in between: first
 * translator_check sets t->request[n]; then translator_ask, anywhere, answers them; then
 * translator_accept counts and reports the answers, t->request[n] being set again. Its result is
 * valid as long as `answer` and until the next call. */
int translator_ask(struct translator *t, int n, const struct heed_answer **out);
const struct heed_answer *translator_accept(struct translator *t, const struct heed_answer *answer,
                                            int n);
/* The text of the request for a line that lacks its language tag. */
extern const char TRANSLATOR_UNTAGGED[];
/* At the end: CLI_DONE, or CLI_FAILURE after a sentence where lines could not be translated. */
int translator_verdict(const struct translator *t);
/* Seconds since the model was loaded. */
double translator_seconds(const struct translator *t);
/* Ends the line of progress, so that what is printed next goes below it. */
void translator_progress_end(struct translator *t);

#endif
