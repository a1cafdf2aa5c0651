/*
 * files.h - the files of a corpus with random access to their pairs. Beside pairs, which reads them
 * from the first to the last.
 *
 * A directory keeps the index of the lines (`lines`) and, of each compressed file that can only be
 * read from its start, the text (`N.text`), so that only the first run on a corpus makes them.
 *
 * Call order: open; then, in any number of threads with a reader each, begin and get; release the
 * readers; free.
 */
#ifndef HEED_CORPUS_FILES_H
#define HEED_CORPUS_FILES_H
#include "corpus/index.h"
#include "corpus/pairs.h"
#include "corpus/text.h"

struct files;

/* dir: where index and unpacked texts are kept; it is created. NULL: nothing is kept. watch: of the
 * making of the index; NULL: nobody is told. */
enum heed_status files_open(struct files **out, const struct heed_corpus *c, const char *dir,
                            int threads, const struct index_watch *watch, struct heed_error *err);
void files_free(struct files *f);

/* Of file i, or files i of source and target: how many pairs, and how many bytes of text. */
int64_t files_pairs(const struct files *f, int i);
int64_t files_bytes(const struct files *f, int i);
/* HEED_EIO where one of the files was written to since files_open. */
enum heed_status files_unchanged(const struct files *f, struct heed_error *err);

struct files_place {
    int file;
    int64_t pair; /* of the file, from 0 */
};

enum { READER_MAX = 64 };

/* A few pairs that are read one after another, and the memory they are read to. {0} is empty. */
struct reader {
    struct reader_pair {
        struct files_place place;
        int64_t at[2], n[2]; /* source, or both sides, and target: place and bytes of the lines */
    } pair[READER_MAX];
    struct text_block block[2];
    char *line[2];
    size_t cap[2];
};

/* Finds n pairs, at most READER_MAX, and asks the system to read them ahead. */
enum heed_status reader_begin(struct reader *r, const struct files *f,
                              const struct files_place *place, size_t n, struct heed_error *err);
/* The i-th of them; valid until the next call with this reader. */
enum heed_status reader_get(struct reader *r, const struct files *f, size_t i, struct pair *out,
                            struct heed_error *err);
void reader_release(struct reader *r);

#endif
