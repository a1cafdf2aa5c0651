/*
 * index.h - where the lines of a few text files begin, in a file that is made once and kept.
 *
 * The index takes 6 bytes a line. It is made by several threads, written to a temporary file and
 * renamed, and read in small pieces afterwards, so that it takes no memory however long the text
 * is. It holds the size and the time of each text file, and a checksum of itself: an index that
 * does not fit its files, or is damaged, is made again.
 *
 * Call order: load, or make where that finds none; range from any thread; free.
 */
#ifndef HEED_CORPUS_INDEX_H
#define HEED_CORPUS_INDEX_H
#include "corpus/text.h"

struct index;

/* The files, in an order that the index keeps. */
struct index_files {
    struct text *const *text;       /* [n] lent; each must outlive the index */
    const struct text_stamp *stamp; /* [n] of the files as the user knows them */
    const char *const *name;        /* [n] for errors */
    int n;
};

/* Is told now and then how much of the text is done, 0 to 1, by the thread that called. */
struct index_watch {
    void (*done)(void *user, double part); /* NULL: nobody is told */
    void *user;
};

/* Opens the index at path. *out is NULL where there is none, or none that is whole and about these
 * files as they are now. */
enum heed_status index_load(struct index **out, const char *path, const struct index_files *f,
                            int threads, struct heed_error *err);
/* Makes the index and opens it. */
enum heed_status index_make(struct index **out, const char *path, const struct index_files *f,
                            int threads, const struct index_watch *watch, struct heed_error *err);
void index_free(struct index *x);

/* How many lines file i has: those that input_line would give. */
int64_t index_lines(const struct index *x, int file);
/* Where a line of a file, from 0, begins, and how many bytes it has, its line end included. */
enum heed_status index_range(const struct index *x, int file, int64_t line, int64_t *at, int64_t *n,
                             struct heed_error *err);

#endif
