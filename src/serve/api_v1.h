/*
 * api_v1.h - parts of the answer of POST /v1/translate.
 */
#ifndef HEED_SERVE_API_V1_H
#define HEED_SERVE_API_V1_H
#include "serve/ask.h"

/* Text i of an ask that has ended well: an element of "translations". */
json_t *v1_translation(const struct ask *a, int i);

#endif
