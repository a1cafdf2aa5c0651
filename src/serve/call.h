/*
 * call.h - an HTTP request and the reply to it, as handlers see them: they know nothing of sockets.
 *
 * A handler either sets the reply, or makes a task and sets `finish`, which sets the reply when the
 * task has ended. A reply that is a stream has `next`, which adds what there is to `out`.
 */
#ifndef HEED_SERVE_CALL_H
#define HEED_SERVE_CALL_H
#include <jansson.h>
#include <stdbool.h>

#include "serve/buffer.h"
#include "serve/fields.h"

struct server;
struct call;
struct task;

struct reply {
    int status;       /* of HTTP; 0: there is no reply yet */
    const char *type; /* Content-Type */
    char *text;       /* [n] freed with the call, unless `fixed` */
    size_t n;
    const char *fixed;  /* what is sent in place of text, and lives as long as the program */
    const char *etag;   /* or NULL */
    const char *policy; /* Content-Security-Policy, or NULL */
    const char *cache;  /* Cache-Control, or NULL */
    const char *allow;  /* with 405: the method that is allowed */
    int retry_after;    /* seconds; 0: the header is not sent */
};

enum stream_step {
    STREAM_MORE, /* something was added to `out` */
    STREAM_WAIT, /* the call sleeps, and is woken */
    STREAM_END
};

enum { ROUTE_NAME_MAX = 256 }; /* names of files have at most 255 bytes */

struct call {
    struct server *server;
    /* the request */
    const char *method, *path;
    struct fields query;
    const char *content_type, *accept, *authorization, *if_none_match; /* headers, or NULL */
    struct buffer body;
    bool too_large; /* the body is longer than the limit, and was not kept */
    bool crowds;    /* its address has as many calls under way as it may */
    json_t *json;   /* the body, where it is a JSON object */
    struct fields form;
    char route_name[ROUTE_NAME_MAX]; /* the part of the path that names a run or an asset */
    /* the reply */
    struct reply reply;
    bool streams; /* the reply is a stream of events */
    enum stream_step (*next)(struct call *c);
    struct buffer out; /* of a stream: bytes that were not sent yet */
    void *state;       /* of the handler, freed by `forget` */
    void (*forget)(struct call *c);
    /* what the call waits for */
    struct task *task; /* or NULL */
    void (*finish)(struct call *c);
    /* Suspends the connection; called with the lock of the task held, or that of the watched runs.
     * wake: resumes it. Both take the call. */
    void (*suspend)(void *call);
    void (*wake)(void *call);
    bool gone; /* the client went away while the call was suspended; the keeper's own */
    /* for the log and the metrics */
    const char *route; /* pattern of the route; NULL: there is none */
};

/* {0} with the server set is a call. */
void call_release(struct call *c);

/* Each sets the reply. */
void reply_json(struct call *c, int status, json_t *value); /* takes the value; NULL: no memory */
void reply_error(struct call *c, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void reply_text(struct call *c, const char *type, char *text); /* takes it; NULL: no memory */

/* Reads the body as its Content-Type says; false after an error reply. */
bool call_read_body(struct call *c);
/* Frees the body and what was read of it: an answer may take long, and JSON takes much memory. */
void call_forget_body(struct call *c);
/* A parameter as LibreTranslate looks for it: a string of the JSON object, or a field of the form
 * or of the query; NULL: there is none, or it is no string. */
const char *call_parameter(const struct call *c, const char *name);

/* A JSON string of n bytes, mended where they are not UTF-8. */
json_t *json_text(const char *text, size_t n);

#endif
