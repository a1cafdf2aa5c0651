/*
 * parcel.h - requests and answers as bytes, to be sent to another process of the same program.
 */
#ifndef HEED_CLI_PARCEL_H
#define HEED_CLI_PARCEL_H
#include "heed.h"

/* n requests: of each the text, and what is given as its translation, if any. Lines whose text is
 * `untagged` stay known as such. *out is malloced; false when out of memory. */
bool requests_pack(const struct heed_request *request, int n, const char *untagged, char **out,
                   size_t *bytes);
/* The number of requests, at most max; sets text and given of each, which point into the bytes, or
 * to `untagged`. */
int requests_unpack(struct heed_request *request, int max, const char *untagged, const char *bytes);

/* n answers, without the nodes of their search. */
bool answers_pack(const struct heed_answer *answer, int n, char **out, size_t *bytes);
/* *answer [n] is malloced in one block, and points into the bytes; NULL when out of memory. */
struct heed_answer *answers_unpack(const char *bytes, int *n);

#endif
