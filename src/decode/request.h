/*
 * request.h - what a request asks for: checked, and in the terms of a beam search.
 */
#ifndef HEED_DECODE_REQUEST_H
#define HEED_DECODE_REQUEST_H
#include "decode/beam.h"

/* HEED_OK, or HEED_EARG and what is wrong with a request and its options o, as far as that can be
 * told without the vocabulary. longest: tokens of a sentence that the model takes, end mark
 * included. */
enum heed_status request_check(const struct heed_request *r, const struct heed_translate_options *o,
                               int longest, struct heed_error *err);

/* The beam options of a request that was found right. */
struct beam_options request_beam(const struct heed_request *r,
                                 const struct heed_translate_options *o);

#endif
