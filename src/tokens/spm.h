/*
 * spm.h - checks that a SentencePiece model file is safe to load, and reads its pieces.
 */
#ifndef HEED_TOKENS_SPM_H
#define HEED_TOKENS_SPM_H
#include "heed.h"
#ifdef __cplusplus
extern "C" {
#endif

struct spm_traits {
    bool words_alone; /* no piece spans a space and spaces are kept, so that the ids of a text are
                         those of its words one after another */
    float coverage;   /* part of the characters of the training text that have pieces of their own;
                         the others were written in bytes, or as unknown */
};

/* Checks a model file before SentencePiece reads it. The library trusts its model files: it follows
 * a wrong index in the normalization table, and a NUL inside a piece ends the program. Errors call
 * the file `name`. */
enum heed_status spm_check(const char *data, size_t len, const char *name, struct spm_traits *out,
                           struct heed_error *err);

#define SPM_SPACE "\xe2\x96\x81" /* U+2581, which SentencePiece writes for a space */

enum { SPM_NORMAL = 1, SPM_MARK = 3, SPM_TAG = 4, SPM_UNUSED = 5, SPM_BYTE = 6 };

struct spm_piece {
    const char *text; /* not terminated */
    size_t len;
    float score;
    int kind; /* one of the above, or another kind of mark */
};

/* The n pieces of a model that passed spm_check, by id, malloced; their texts are in data. */
enum heed_status spm_pieces(const char *data, size_t len, struct spm_piece **out, int n,
                            struct heed_error *err);

/* Whether a piece is the tag of a language, such as >>de<<. */
bool spm_is_language(const char *piece, size_t len);
/* Turns the tags of languages into marks, in a model that passed spm_check: they keep their ids,
 * but no text is encoded as one. */
void spm_disarm_languages(char *data, size_t len);

/* Removes from a model the number of threads it was trained with, so that its bytes do not depend
 * on that. Returns the new length. */
size_t spm_forget_threads(char *data, size_t len);

#ifdef __cplusplus
}
#endif
#endif
