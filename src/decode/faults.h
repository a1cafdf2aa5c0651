/*
 * faults.h - what is wrong with a translation, told from its tokens: it repeats itself, equals its
 * source, or has no end mark.
 */
#ifndef HEED_DECODE_FAULTS_H
#define HEED_DECODE_FAULTS_H
#include "decode/search.h"

/* Some of the flags of heed_flag. src: the source without its language tag. */
unsigned faults_of(const struct heed_ids *src, const struct translation *t);

/* The flags for which a second search is worth while. */
enum { FAULTS_TO_MEND = HEED_FLAG_LOOP | HEED_FLAG_CUT };

#endif
