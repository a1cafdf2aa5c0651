/*
 * stream.h - server-sent events.
 */
#ifndef HEED_SERVE_STREAM_H
#define HEED_SERVE_STREAM_H
#include "serve/call.h"

/* Makes the reply a stream, which `next` adds events to. */
void stream_begin(struct call *c, enum stream_step (*next)(struct call *c));
/* Appends an event; takes the value. */
void stream_event(struct buffer *out, const char *event, json_t *value);

/* Makes the reply of a call, whose task is an ask that asks for news, a stream of its translation:
 * events "partial", "translation", "done" and "error". */
void stream_translation(struct call *c);

#endif
