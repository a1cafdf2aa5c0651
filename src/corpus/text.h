/*
 * text.h - random access to the bytes of a text file. Beside input, which reads a file from its
 * start to its end.
 *
 * A plain file is read where the bytes are. A compressed file can be read from the middle only if
 * it was cut up: xz files of several blocks (xz --block-size=256KiB) and gzip files of the form
 * that bgzip writes. A block is decoded whole, so only blocks of up to TEXT_BLOCK_MAX bytes are
 * worth it; text_open says of any other compressed file that it has to be unpacked.
 *
 * Call order: open, then read and prefetch from any number of threads, each with a text_block of
 * its own; release the blocks; free.
 */
#ifndef HEED_CORPUS_TEXT_H
#define HEED_CORPUS_TEXT_H
#include "heed.h"

enum { TEXT_BLOCK_MAX = 1 << 20 };

struct text;

/* By what a file is recognized as unchanged. */
struct text_stamp {
    int64_t bytes;   /* of the file itself, compressed or not */
    int64_t changed; /* when it was last modified, in nanoseconds since 1970 */
};

/* The block that a thread has decoded last. {0} is none. */
struct text_block {
    const struct text *text;
    long number;
    char *data;
};

/* Opens a regular file. *out is NULL where the file is compressed and cannot be read from the
 * middle. A file that is damaged as far as the open sees is an error. */
enum heed_status text_open(struct text **out, const char *path, struct heed_error *err);
void text_free(struct text *t);

/* Bytes of the text, decoded. */
int64_t text_bytes(const struct text *t);
/* The stamp that the file had when it was opened, and the present one of any file. */
struct text_stamp text_stamp(const struct text *t);
enum heed_status text_stamp_of(const char *path, struct text_stamp *out, struct heed_error *err);
bool text_stamp_equal(struct text_stamp a, struct text_stamp b);
/* HEED_EIO where the file was written to since it was opened. */
enum heed_status text_unchanged(const struct text *t, struct heed_error *err);

/* Reads n bytes, all of which are in the text, to out. */
enum heed_status text_read(const struct text *t, struct text_block *block, char *out, int64_t at,
                           size_t n, struct heed_error *err);
/* Asks the system to read n bytes ahead; they are wanted soon. */
void text_prefetch(const struct text *t, int64_t at, size_t n);
void text_block_release(struct text_block *b);

#endif
