/*
 * call.c - an HTTP request and the reply to it; see call.h.
 */
#include "serve/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve/utf8.h"
#include "serve/worker.h"

void call_forget_body(struct call *c)
{
    json_decref(c->json);
    c->json = NULL;
    fields_release(&c->form);
    buffer_release(&c->body);
}

void call_release(struct call *c)
{
    if (c->forget) c->forget(c);
    if (c->task) task_leave(c->task);
    call_forget_body(c);
    fields_release(&c->query);
    buffer_release(&c->out);
    free(c->reply.text);
}

/* ---- replies ---- */

void reply_text(struct call *c, const char *type, char *text)
{
    free(c->reply.text);
    c->reply.text = text;
    c->reply.n = text ? strlen(text) : 0;
    c->reply.status = text ? 200 : 503;
    c->reply.type = type;
    c->reply.retry_after = text ? 0 : 1;
}

void reply_json(struct call *c, int status, json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(value);
    reply_text(c, "application/json", text);
    if (text) c->reply.status = status;
}

void reply_error(struct call *c, int status, const char *format, ...)
{
    struct buffer text = {0};
    char sentence[1024];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(sentence, sizeof sentence, format, ap);
    va_end(ap);
    if (n >= (int)sizeof sentence) n = (int)sizeof sentence - 1;
    utf8_mend(&text, sentence, n > 0 ? (size_t)n : 0); /* it may have been cut inside of a letter */
    reply_json(c, status, json_pack("{ss}", "error", text.v ? text.v : ""));
    buffer_release(&text);
    if (status == 503 || status == 429) c->reply.retry_after = 1;
}

json_t *json_text(const char *text, size_t n)
{
    json_t *value = json_stringn(text, n);
    if (value) return value;
    struct buffer b = {0};
    utf8_mend(&b, text, n);
    value = b.failed ? NULL : json_stringn(b.v ? b.v : "", b.n);
    buffer_release(&b);
    return value;
}

/* ---- the body ---- */

/* Whether a Content-Type is this one, whatever parameters follow. */
static bool is_type(const char *header, const char *type)
{
    size_t n = strlen(type);
    return header && !strncasecmp(header, type, n) && (!header[n] || strchr("; \t", header[n]));
}

static bool read_json(struct call *c)
{
    /* Integers of any length are numbers, and all that there is a use for are exact in a double. */
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL;
    json_error_t err;
    c->json = json_loadb(c->body.v ? c->body.v : "", c->body.n, flags, &err);
    if (json_is_object(c->json)) return true;
    if (c->json) {
        reply_error(c, 400, "Invalid JSON format: the body is no object");
    } else {
        reply_error(c, 400, "Invalid JSON format: line %d, column %d: %s", err.line, err.column,
                    err.text);
    }
    return false;
}

static bool read_form(struct call *c)
{
    const char *text = c->body.v ? c->body.v : "";
    if (is_type(c->content_type, "multipart/form-data")) {
        bool good = fields_read_multipart(&c->form, c->content_type, text, c->body.n);
        if (!good) reply_error(c, 400, "Invalid request: the body is no multipart form");
        return good;
    }
    bool good = fields_read_urlencoded(&c->form, text, c->body.n);
    if (!good) reply_error(c, 503, "out of memory for the form");
    return good;
}

bool call_read_body(struct call *c)
{
    bool json = is_type(c->content_type, "application/json");
    bool form = is_type(c->content_type, "application/x-www-form-urlencoded") ||
                is_type(c->content_type, "multipart/form-data");
    if (json) return read_json(c);
    if (form || c->body.n == 0) return read_form(c);
    reply_error(c, 415,
                "Content-Type is '%.100s', expected application/json, "
                "application/x-www-form-urlencoded or multipart/form-data",
                c->content_type ? c->content_type : "");
    return false;
}

const char *call_parameter(const struct call *c, const char *name)
{
    if (c->json) return json_string_value(json_object_get(c->json, name));
    const char *value = fields_find(&c->form, name);
    return value ? value : fields_find(&c->query, name);
}
