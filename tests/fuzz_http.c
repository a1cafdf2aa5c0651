/*
 * fuzz_http.c - libFuzzer entry: any bytes as requests to the handlers of the server, without a
 * socket. The first byte chooses the route and the type of the body, then come a header, the query
 * and the body, each up to a line end. The worker is one of this file, which "translates" at once:
 * the words of a line in reverse order, linked to where they came from. So any text goes through
 * alignments, HTML, streams and JSON.
 */
#include <jansson.h>

#include "fuzz.h"
#include "serve/answer.h"
#include "serve/ask.h"
#include "serve/html.h"
#include "serve/server.h"
#include "serve/utf8.h"

static const char *const words[] = {"<b>",
                                    "</b>",
                                    "<p>",
                                    "<br>",
                                    "<a href=\"x\">",
                                    "</a>",
                                    "<script>",
                                    "</script>",
                                    "<!--",
                                    "-->",
                                    "<code>",
                                    "</code>",
                                    "translate=no",
                                    "&amp;",
                                    "&#x41;",
                                    "&copy;",
                                    "{\"q\":",
                                    "\"source\":",
                                    "\"target\":",
                                    "\"text\":",
                                    "\"auto\"",
                                    "\"de\"",
                                    "\"format\":",
                                    "\"html\"",
                                    "\"nbest\":",
                                    "\"align\":",
                                    "\"tokens\":",
                                    "\"stream\":",
                                    "\"required\":",
                                    "\"banned\":",
                                    "\"prefix\":",
                                    "\"api_key\":",
                                    "true",
                                    "\\u0000",
                                    "\\ud83d\\ude00",
                                    "%00",
                                    "q=",
                                    "&source=en",
                                    "&target=de",
                                    "--x\r\n",
                                    "--x--",
                                    "name=\"q\"",
                                    "\r\n\r\n",
                                    "after=",
                                    "step=",
                                    "Bearer key",
                                    NULL};

static const char *const paths[] = {"/translate",
                                    "/v1/translate",
                                    "/detect",
                                    "/languages",
                                    "/health",
                                    "/frontend/settings",
                                    "/spec",
                                    "/metrics",
                                    "/v1/models",
                                    "/v1/runs",
                                    "/v1/runs/1/log",
                                    "/v1/runs/1/samples",
                                    "/v1/runs/1/attention",
                                    "/web/style.css",
                                    "/",
                                    "/nothing"};
static const char *const types[] = {"application/json", "application/x-www-form-urlencoded",
                                    "multipart/form-data; boundary=x", "text/plain"};

/* The default model, which the build tree has beside the fuzzers; only its configuration and its
 * languages are used. */
static char model[PATH_MAX];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const seed[] = {
        "\x00\n\n{\"q\":\"<p>A <b>dog</b> runs.</p>\",\"source\":\"en\",\"target\":\"de\","
        "\"format\":\"html\",\"alternatives\":1}",
        "\x10\n\nq=A%20dog%0aruns.&source=en&target=de",
        "\x20\n\n--x\r\nContent-Disposition: form-data; name=\"q\"\r\n\r\nHello\r\n--x--\r\n",
        "\x01\n\n{\"text\":[\"A dog.\",\"\"],\"target\":\"de\",\"nbest\":2,\"align\":true,"
        "\"tokens\":true,\"beam_tree\":true,\"required\":[\"x\"]}",
        "\x0a\nafter=0\n"};
    const char *slash = strrchr((*argv)[0], '/');
    snprintf(model, sizeof model, "%.*s../models/default",
             slash ? (int)(slash + 1 - (*argv)[0]) : 0, (*argv)[0]);
    if (!fuzz_begin(argc, argv, words)) return 0;
    for (size_t i = 0; i < sizeof seed / sizeof *seed; i++) {
        char name[8];
        snprintf(name, sizeof name, "%zu", i);
        /* the first seed begins with NUL */
        fuzz_seed(name, seed[i], 1 + strlen(seed[i] + 1));
    }
    return 0;
}

/* ---- a translation of any line ---- */

enum { WORDS_MOST = 64 };

struct translation {
    struct heed_answer answer;
    struct heed_result result;
    struct heed_alignment alignment;
    struct heed_span source[WORDS_MOST], target[WORDS_MOST];
    int link[WORDS_MOST];
    char *text;
};

static int split(const char *text, struct heed_span *word)
{
    int n = 0;
    for (size_t at = 0; text[at] && n < WORDS_MOST;) {
        size_t len = strcspn(text + at, " ");
        if (len) word[n++] = (struct heed_span){at, len};
        at += len + (text[at + len] == ' ');
    }
    return n;
}

/* The words in reverse order; the last word of the text is linked to none. */
static struct heed_answer *translate(const char *text, bool align)
{
    struct translation t = {.text = calloc(1, strlen(text) + WORDS_MOST + 1)};
    int n = split(text, t.source);
    size_t at = 0;
    if (!t.text) abort();
    for (int i = 0; i < n; i++) {
        struct heed_span s = t.source[n - 1 - i];
        if (i) t.text[at++] = ' ';
        memcpy(t.text + at, text + s.at, s.len);
        t.target[i] = (struct heed_span){at, s.len};
        t.link[i] = i ? n - 1 - i : -1;
        at += s.len;
    }
    t.alignment = (struct heed_alignment){t.source, t.target, n, n, t.link};
    t.result =
        (struct heed_result){.text = t.text, .len = at, .alignment = align ? &t.alignment : NULL};
    t.answer = (struct heed_answer){.result = &t.result, .n = 1};
    struct heed_answer *copy = answer_copy(&t.answer);
    free(t.text);
    return copy;
}

/* ---- the worker of this file, in place of worker.c ---- */

struct worker {
    int unused;
};

struct worker *worker_open(const struct heed_model *m, const struct worker_options *o,
                           struct heed_error *err)
{
    (void)m;
    (void)o;
    (void)err;
    return calloc(1, sizeof(struct worker));
}

void worker_close(struct worker *w)
{
    free(w);
}

double worker_now(void)
{
    static double now;
    return now += 1;
}

bool worker_put(struct worker *w, struct task *t)
{
    (void)w;
    for (int i = 0; i < t->lines; i++) {
        const struct heed_request *r = &t->line[i].request;
        t->line[i].answer = translate(r->text, r->options->align);
        must(t->line[i].answer, "there is memory");
    }
    t->finished = t->lines;
    t->state = TASK_DONE;
    return true;
}

struct worker_counts worker_count(struct worker *w)
{
    (void)w;
    return (struct worker_counts){0};
}

bool task_sleep(struct task *t, void (*suspend)(void *user), void *user)
{
    (void)t;
    (void)suspend;
    (void)user;
    return false;
}

void task_lock(struct task *t)
{
    (void)t;
}

void task_unlock(struct task *t)
{
    (void)t;
}

void task_leave(struct task *t)
{
    t->free(t);
}

/* ---- checks ---- */

static int count(const char *text, size_t n, const char *what)
{
    int found = 0;
    for (const char *p = text; (p = memmem(p, n - (size_t)(p - text), what, strlen(what))); p++)
        found++;
    return found;
}

/* Markup is never lost: as many tags come out as went in. */
static void check_html(const uint8_t *data, size_t size)
{
    struct buffer text = {0}, out = {0};
    utf8_mend(&text, (const char *)data, size);
    if (!text.v) return;
    struct html *h = html_open(text.v, text.n);
    must(h, "there is memory");
    int n = html_lines(h);
    struct heed_answer **answer = calloc((size_t)n + 1, sizeof *answer);
    const struct heed_result **result = calloc((size_t)n + 1, sizeof *result);
    if (!answer || !result) abort();
    for (int i = 0; i < n; i++) {
        answer[i] = translate(html_line(h, i), i % 3 != 2);
        result[i] = answer[i]->result;
    }
    html_join(&out, h, result);
    static const char *const tag[] = {"<b>", "</b>", "<i>", "</i>", "<p>", "<br>", "<img"};
    for (size_t i = 0; i < sizeof tag / sizeof *tag; i++) {
        must(count(out.v ? out.v : "", out.n, tag[i]) == count(text.v, text.n, tag[i]),
             "no tag is lost or made up");
    }
    for (int i = 0; i < n; i++) free(answer[i]);
    free(answer);
    free(result);
    html_free(h);
    buffer_release(&text);
    buffer_release(&out);
}

/* The reply is one that HTTP has, and what says to be JSON is. */
static void check_reply(const struct call *c)
{
    const struct reply *r = &c->reply;
    must(r->status == 200 || (r->status >= 400 && r->status < 500), "a reply is 200 or 4xx");
    if (r->fixed || strcmp(r->type, "application/json") != 0) return;
    json_error_t err;
    json_t *value = json_loadb(r->text, r->n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &err);
    must(value, "a reply is JSON");
    must(r->status == 200 || json_is_string(json_object_get(value, "error")), "an error says why");
    json_decref(value);
}

/* ---- requests ---- */

/* The text up to the next line end, NUL-terminated. */
static char *take_line(const uint8_t **data, size_t *size)
{
    const uint8_t *end = memchr(*data, '\n', *size);
    size_t n = end ? (size_t)(end - *data) : *size;
    char *line = strndup((const char *)*data, n);
    *data += n + (end != NULL);
    *size -= n + (end != NULL);
    if (!line) abort();
    return line;
}

/* Reads a request and what would become of its texts, as far as a handler goes without a model. */
static void request(struct server *s, const uint8_t *data, size_t size)
{
    unsigned which = data[0];
    data++;
    size--;
    char *authorization = take_line(&data, &size), *query = take_line(&data, &size);
    const char *path = paths[which % 16];
    bool get = which % 16 > 2;
    struct call c = {.server = s,
                     .method = get ? "GET" : "POST",
                     .path = path,
                     .authorization = authorization,
                     .if_none_match = authorization,
                     .content_type = types[which / 16 % 4]};
    fields_read_urlencoded(&c.query, query, strlen(query));
    buffer_put(&c.body, data, size);
    route_call(&c);
    must(!c.json && !c.form.v && !c.body.v, "a call that waits does not keep its body");
    if (c.task && !c.streams) route_finish(&c);
    if (c.streams) {
        while (c.next(&c) == STREAM_MORE) c.out.n = 0;
    } else {
        check_reply(&c);
    }
    call_release(&c);
    free(authorization);
    free(query);
}

static void server_init(struct server *s)
{
    struct heed_error err = {0};
    const struct models_options o = {.device = "cpu", .threads = 1, .workers = 1};
    s->o = (struct serve_options){.max_body = 1 << 20, .max_text = 4096, .max_texts = 16};
    s->runs = runs_open(NULL, 0, &err);
    s->models = models_open(&o, &err);
    must(s->models && models_add(s->models, model, &err) == HEED_OK, err.text);
    metrics_init(&s->metrics);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct server server;
    if (!server.models) server_init(&server);
    if (size == 0) return 0;
    request(&server, data, size);
    check_html(data + 1, size - 1);
    return 0;
}
