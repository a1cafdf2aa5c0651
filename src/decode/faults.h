/*
 * faults.h - what is wrong with a translation, by its looks: it runs in circles, is a copy of its
 * source, or has no end.
 */
#ifndef HEED_DECODE_FAULTS_H
#define HEED_DECODE_FAULTS_H
#include "decode/search.h"

/* Flags of heed_flag. src: without tags. */
unsigned faults_of(const struct heed_ids *src, const struct translation *t);

/* Those for which another try is worth while. */
enum { FAULTS_TO_MEND = HEED_FLAG_LOOP | HEED_FLAG_CUT };

#endif
