/*
 * stream.c - a translation as server-sent events, while it grows; see stream.h.
 */
#include "serve/stream.h"

#include <stdlib.h>
#include <string.h>

#include "serve/api_v1.h"

void stream_begin(struct call *c, enum stream_step (*next)(struct call *c))
{
    c->streams = true;
    c->next = next;
    c->reply.status = 200;
    c->reply.type = "text/event-stream";
}

void stream_event(struct buffer *out, const char *event, json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(value);
    if (text) {
        buffer_format(out, "event: %s\ndata: ", event);
        buffer_text(out, text); /* JSON has no line end in it */
        buffer_text(out, "\n\n");
    }
    out->failed = out->failed || !text;
    free(text);
}

/* What a stream has sent of each text. */
struct sent {
    struct {
        size_t bytes; /* of the last partial translation */
        double when;
        bool whole; /* the translation itself was sent */
    } * text;       /* [texts] */
    bool ended;
};

static void forget(struct call *c)
{
    struct sent *s = c->state;
    if (s) free(s->text);
    free(s);
}

/* Whether every line of a text is finished. */
static bool is_finished(const struct ask *a, int i)
{
    const struct ask_text *t = &a->text[i];
    for (int j = 0; !t->unchanged && j < t->document->lines; j++) {
        const struct heed_answer *answer = a->task.line[t->first + j].answer;
        if (!answer || answer->status) return false;
    }
    return true;
}

/* Adds what there is of a text. The longer it is, the less often it is sent. */
static void add_partial(struct call *c, struct sent *s, int i)
{
    const double every = 0.045, bytes_a_second = 100e3;
    double now = worker_now();
    if (now - s->text[i].when < every + (double)s->text[i].bytes / bytes_a_second) return;
    struct buffer text = {0};
    ask_join(&text, ask_of(c), i, 0, NULL);
    s->text[i].when = now;
    if (text.n && !text.failed) {
        s->text[i].bytes = text.n;
        stream_event(&c->out, "partial",
                     json_pack("{si so}", "index", i, "text", json_text(text.v, text.n)));
    }
    buffer_release(&text);
}

static void add_translation(struct call *c, struct sent *s, int i)
{
    json_t *value = v1_translation(ask_of(c), i);
    json_object_set_new(value, "index", json_integer(i));
    stream_event(&c->out, "translation", value);
    s->text[i].whole = true;
}

/* Adds the news. The answers of a line that is finished change no more, so only what is not
 * finished is read with the lock held. */
static void add_news(struct call *c, struct sent *s)
{
    const struct ask *a = ask_of(c);
    for (int i = 0; i < a->texts; i++) {
        if (s->text[i].whole) continue;
        task_lock(c->task);
        bool done = a->task.state == TASK_DONE;
        bool finished = is_finished(a, i) && (!a->attention || done);
        if (!finished && a->task.state == TASK_UNDER_WAY) add_partial(c, s, i);
        task_unlock(c->task);
        if (finished) add_translation(c, s, i);
    }
}

/* The last event: that all is done, or what went wrong. */
static void add_end(struct call *c)
{
    const struct ask *a = ask_of(c);
    if (a->task.state == TASK_DONE && ask_is_good(c, a)) {
        stream_event(&c->out, "done", json_pack("{ss}", "model", a->model->name));
        return;
    }
    if (a->task.state != TASK_DONE) route_finish(c); /* sets an error reply */
    json_t *error = c->reply.text ? json_loads(c->reply.text, 0, NULL) : NULL;
    stream_event(&c->out, "error", error ? error : json_pack("{ss}", "error", "The server stops"));
}

static enum stream_step next(struct call *c)
{
    struct sent *s = c->state;
    if (s->ended) return STREAM_END;
    while (c->out.n == 0 && !c->out.failed) {
        if (task_sleep(c->task, c->suspend, c)) return STREAM_WAIT;
        task_lock(c->task);
        bool ended = c->task->state != TASK_UNDER_WAY;
        task_unlock(c->task);
        add_news(c, s);
        if (ended) {
            add_end(c);
            s->ended = true;
        }
    }
    return STREAM_MORE;
}

void stream_translation(struct call *c)
{
    struct sent *s = calloc(1, sizeof *s);
    if (s) s->text = calloc((size_t)ask_of(c)->texts + 1, sizeof *s->text);
    c->state = s;
    c->forget = forget;
    if (!s || !s->text) {
        reply_error(c, 503, "out of memory for a stream");
        return;
    }
    stream_begin(c, next);
}
