/*
 * answer.h - a copy of an answer, which lives longer than that of the session.
 */
#ifndef HEED_SERVE_ANSWER_H
#define HEED_SERVE_ANSWER_H
#include "heed.h"

/* One block of memory with the answer and all it points to but `copied` and `left_out` of its
 * results; the caller frees it. NULL: out of memory. */
struct heed_answer *answer_copy(const struct heed_answer *from);

#endif
