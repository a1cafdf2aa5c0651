/*
 * fingerprint.h - identifies files by their size and a checksum, so that they may be moved.
 */
#ifndef HEED_TRAIN_FINGERPRINT_H
#define HEED_TRAIN_FINGERPRINT_H
#include "heed.h"

enum { FINGERPRINT_MAX = 64 };

/* "1234 bytes, crc32 89abcdef": the size, and a checksum of the content or, of a file larger than a
 * megabyte, of samples of it. */
enum heed_status fingerprint_file(char out[FINGERPRINT_MAX], const char *path,
                                  struct heed_error *err);
/* The same of all files of a corpus, in their order: "2 files, 5678 bytes, crc32 89abcdef". Empty
 * for a corpus without files. */
enum heed_status fingerprint_corpus(char out[FINGERPRINT_MAX], const struct heed_corpus *c,
                                    struct heed_error *err);
/* The weights of a corpus: "2 0.5", or, where they are too many, "40 weights, crc32 89abcdef", or
 * "temperature 5"; FINGERPRINT_EQUAL where none differs from 1. */
void fingerprint_mix(char out[FINGERPRINT_MAX], const struct heed_corpus *c);
#define FINGERPRINT_EQUAL "equal"

#endif
