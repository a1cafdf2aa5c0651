/*
 * spm.h - is this a SentencePiece model that can be handed to the library without harm? And its
 * pieces.
 */
#ifndef HEED_TOKENS_SPM_H
#define HEED_TOKENS_SPM_H
#include "heed.h"
#ifdef __cplusplus
extern "C" {
#endif

struct spm_traits {
    bool words_alone; /* no piece reaches over a space and spaces are kept, so that the ids of a
                       * text are those of its words one after another */
    float coverage;   /* the part of the training text's characters that have pieces of their own;
                       * the others were written in bytes, or as unknown */
};

/* SentencePiece trusts its model files: a wrong index in the normalization table is followed, a
 * NUL inside a piece ends the program. This walks the file first. name is what an error calls it.
 */
enum heed_status spm_check(const char *data, size_t len, const char *name, struct spm_traits *out,
                           struct heed_error *err);

#define SPM_SPACE "\xe2\x96\x81" /* U+2581, which SentencePiece writes for a space */

enum { SPM_NORMAL = 1, SPM_MARK = 3, SPM_TAG = 4, SPM_UNUSED = 5, SPM_BYTE = 6 };

struct spm_piece {
    const char *text; /* not terminated */
    size_t len;
    float score;
    int kind; /* one of the above, or a mark */
};

/* The n pieces of a model that passed spm_check, by id, malloced; their texts are in data. */
enum heed_status spm_pieces(const char *data, size_t len, struct spm_piece **out, int n,
                            struct heed_error *err);

/* Whether a piece is the tag of a language, such as >>de<<. */
bool spm_is_language(const char *piece, size_t len);
/* Makes the tags of languages marks, in a model that passed spm_check: they keep their ids, but no
 * text is encoded as one. */
void spm_disarm_languages(char *data, size_t len);

/* Drops the number of threads that a model was trained with, which is no part of what it is.
 * Returns the new length. */
size_t spm_forget_threads(char *data, size_t len);

#ifdef __cplusplus
}
#endif
#endif
