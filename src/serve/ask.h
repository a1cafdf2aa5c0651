/*
 * ask.h - a translation that a client asks for: texts, cut into lines, how they are to be
 * translated, and by which model.
 *
 * Call order: ask_new; the caller fills options and wishes; ask_add_text for each text;
 * ask_choose_model; ask_submit, which makes it the call's task; ask_text_* when it has ended.
 */
#ifndef HEED_SERVE_ASK_H
#define HEED_SERVE_ASK_H
#include "serve/document.h"
#include "serve/server.h"

struct ask_text {
    struct document *document;
    int first;      /* number of its first line in the task */
    bool unchanged; /* it is in the target language already: its translation is the text itself */
    bool detected;  /* `source` was detected, with this confidence of 0 to 1 */
    float confidence;
    const char *source; /* its language, of the model's list; NULL: not known */
};

struct ask {
    struct task task; /* first, so that a task is its ask */
    struct model *model;
    const char *target;                    /* of the model's list; NULL: the model has one */
    struct heed_translate_options options; /* of all lines but those that need an alignment */
    struct heed_translate_options aligned; /* of these */
    char *prefix;
    char **required, **banned;
    int required_n, banned_n;
    bool html;
    bool list;                               /* the texts came as a list */
    bool automatic;                          /* their language was to be detected */
    bool tokens, alignment, attention, tree; /* what the answer has besides */
    struct ask_text *text;                   /* [texts] */
    int texts;
};

/* NULL after an error reply, as below. */
struct ask *ask_new(struct call *c, int texts, bool html);
void ask_free(struct ask *a);
/* Copies text i into the ask; NUL and what is not UTF-8 is mended. False after an error reply. */
bool ask_set_text(struct call *c, struct ask *a, int i, const char *text, size_t n);

/* Finds a model by its name, or by the languages where name is NULL, and the source language of
 * each text, where `source` is "auto". each: for each text by itself, else for all together. target
 * may be NULL for a model that has one language to translate to. False after an error reply. */
bool ask_choose_model(struct call *c, struct ask *a, const char *name, const char *source,
                      const char *target, bool each);
/* Gives the ask to the worker of its model, and takes it over in any case. `finish` sets the reply
 * when it has ended. An error reply is set where too many wait. */
void ask_submit(struct call *c, struct ask *a, void (*finish)(struct call *c));

/* The ask of a call. */
struct ask *ask_of(const struct call *c);
/* Whether every line has its translation; false after an error reply. */
bool ask_is_good(struct call *c, const struct ask *a);
/* How many translations text i has. */
int ask_results(const struct ask *a, int i);
/* Appends translation k of text i. With lines that are not finished: what there is of them. at: see
 * document_join. */
void ask_join(struct buffer *out, const struct ask *a, int i, int k, size_t *at);
/* Result k of line j of text i, or its last where it has fewer; NULL: it is not finished. */
const struct heed_result *ask_result(const struct ask *a, int i, int j, int k);

/* The languages that texts may be in, of all models: malloced, and the models that the strings
 * belong to are held. */
struct known_languages {
    const char **language; /* [n] */
    int n;
    struct model **held; /* [held_n] */
    int held_n;
};
bool known_languages_open(struct known_languages *k, struct models *m);
void known_languages_release(struct known_languages *k);
bool known_languages_have(const struct known_languages *k, const char *code);

#endif
