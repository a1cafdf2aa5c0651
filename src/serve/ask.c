/*
 * ask.c - a translation that a client asks for; see ask.h.
 */
#include "serve/ask.h"

#include <stdlib.h>
#include <string.h>

#include "serve/languages.h"
#include "serve/utf8.h"

static void free_texts(char **v, int n)
{
    for (int i = 0; i < n; i++) free(v[i]);
    free(v);
}

void ask_free(struct ask *a)
{
    if (!a) return;
    for (int i = 0; i < a->task.lines; i++) {
        free(a->task.line[i].answer);
        free(a->task.line[i].partial);
    }
    for (int i = 0; i < a->texts; i++) document_free(a->text[i].document);
    heed_attention_free(a->task.seen);
    free(a->task.unseen);
    free(a->task.line);
    free(a->text);
    free(a->prefix);
    free_texts(a->required, a->required_n);
    free_texts(a->banned, a->banned_n);
    model_release(a->model);
    free(a);
}

static void free_task(struct task *t)
{
    ask_free((struct ask *)t);
}

struct ask *ask_of(const struct call *c)
{
    return (struct ask *)c->task;
}

struct ask *ask_new(struct call *c, int texts, bool html)
{
    struct ask *a = calloc(1, sizeof *a);
    if (a) a->text = calloc((size_t)texts + 1, sizeof *a->text);
    if (!a || !a->text) {
        free(a);
        reply_error(c, 503, "out of memory for %d texts", texts);
        return NULL;
    }
    a->texts = texts;
    a->html = html;
    a->options = heed_translate_defaults();
    a->task.free = free_task;
    return a;
}

bool ask_set_text(struct call *c, struct ask *a, int i, const char *text, size_t n)
{
    struct buffer mended = {0};
    utf8_mend(&mended, text, n);
    if (!mended.failed) a->text[i].document = document_open(mended.v, mended.n, a->html);
    buffer_release(&mended);
    if (!a->text[i].document) reply_error(c, 503, "out of memory for a text");
    return a->text[i].document;
}

/* ---- languages ---- */

bool known_languages_have(const struct known_languages *k, const char *code)
{
    for (int i = 0; i < k->n; i++) {
        if (!strcmp(k->language[i], code)) return true;
    }
    return false;
}

static bool known_languages_add(struct known_languages *k, struct model *m)
{
    struct model **held = realloc(k->held, (size_t)(k->held_n + 1) * sizeof *held);
    if (held) k->held = held;
    const char **v = realloc(k->language, (size_t)(k->n + m->languages + 1) * sizeof *v);
    if (v) k->language = v;
    if (!held || !v) {
        model_release(m);
        return false;
    }
    k->held[k->held_n++] = m;
    for (int i = 0; i < m->languages; i++) {
        if (!known_languages_have(k, m->language[i])) k->language[k->n++] = m->language[i];
    }
    return true;
}

bool known_languages_open(struct known_languages *k, struct models *all)
{
    struct model *m;
    *k = (struct known_languages){0};
    for (int i = 0; (m = models_at(all, i)); i++) {
        if (!known_languages_add(k, m)) return false;
    }
    return true;
}

void known_languages_release(struct known_languages *k)
{
    for (int i = 0; i < k->held_n; i++) model_release(k->held[i]);
    free(k->held);
    free(k->language);
}

/* The likeliest language of a text; NULL: there are none to choose from, or memory is short. */
static const char *detect(const struct known_languages *k, const char *text, float *confidence)
{
    struct heed_detection *found = calloc((size_t)k->n + 1, sizeof *found);
    int n = found ? heed_detect_language(text, k->language, k->n, found) : 0;
    const char *language = n ? found[0].language : NULL;
    *confidence = n ? found[0].confidence : 0;
    free(found);
    return language;
}

/* All texts in one, with spaces between them. */
static char *all_texts(const struct ask *a)
{
    struct buffer b = {0};
    for (int i = 0; i < a->texts; i++) {
        for (int j = 0; j < a->text[i].document->lines; j++) {
            buffer_text(&b, a->text[i].document->line[j].text);
            buffer_text(&b, " ");
        }
    }
    return buffer_take(&b);
}

/* The lines of one text, which of HTML are its text without tags. */
static char *lines_of(const struct ask_text *t)
{
    struct ask one = {.text = (struct ask_text *)t, .texts = 1};
    return all_texts(&one);
}

/* Detects the language of all texts together in *source, and of each by itself where `each` says
 * so. */
static bool detect_all(struct ask *a, const struct known_languages *k, bool each,
                       const char **source)
{
    float confidence;
    char *all = all_texts(a);
    if (!all) return false;
    *source = detect(k, all, &confidence);
    free(all);
    for (int i = 0; i < a->texts; i++) {
        struct ask_text *t = &a->text[i];
        char *text = each ? lines_of(t) : NULL;
        if (each && !text) return false;
        t->detected = true;
        t->confidence = confidence;
        t->source = each ? detect(k, text, &t->confidence) : *source;
        free(text);
    }
    return true;
}

/* Whether some model translates from, or to, a language. */
static bool any_model(struct models *all, const char *written, bool to)
{
    struct model *m;
    bool found = false;
    for (int i = 0; !found && (m = models_at(all, i)); i++) {
        found = to ? model_target(m, written) : model_source(m, written);
        model_release(m);
    }
    return found;
}

static void refuse_languages(struct call *c, const char *source, const char *target)
{
    struct models *all = c->server->models;
    if (!any_model(all, target, true)) {
        reply_error(c, 400, "%.40s is not supported", target);
    } else if (source && !any_model(all, source, false)) {
        reply_error(c, 400, "%.40s is not supported", source);
    } else {
        reply_error(c, 400, "%s (%.40s) is not available as a target language from %s (%.40s)",
                    language_name(target), target, source ? language_name(source) : "any language",
                    source ? source : "");
    }
}

static bool choose_by_name(struct call *c, struct ask *a, const char *name, const char *source,
                           const char *target)
{
    a->model = models_pick(c->server->models, name, NULL, NULL);
    if (!a->model) {
        reply_error(c, 400, "There is no model %.100s; GET /v1/models lists them", name);
        return false;
    }
    bool one = a->model->languages == 0;
    if (!one && source && !model_source(a->model, source)) {
        reply_error(c, 400, "Model %.100s does not translate from %.40s", name, source);
        return false;
    }
    if (one || (target && model_target(a->model, target))) return true;
    if (target) {
        reply_error(c, 400, "Model %.100s does not translate to %.40s", name, target);
    } else {
        reply_error(c, 400, "target is missing");
    }
    return false;
}

static bool choose_by_languages(struct call *c, struct ask *a, const char *source,
                                const char *target)
{
    a->model = models_pick(c->server->models, NULL, source, target);
    if (!a->model) refuse_languages(c, source, target);
    return a->model;
}

/* A text that is in the target language already, as the client says or as is plain to see, is not
 * translated. */
static bool is_in_target(const struct ask *a, const struct ask_text *t)
{
    const float plain = 0.5F;
    bool same = t->source && a->target && language_same(t->source, a->target);
    return same && (!t->detected || t->confidence > plain);
}

bool ask_choose_model(struct call *c, struct ask *a, const char *name, const char *source,
                      const char *target, bool each)
{
    struct known_languages known;
    bool automatic = !source || !strcmp(source, "auto");
    bool good = known_languages_open(&known, c->server->models);
    a->automatic = automatic;
    if (automatic) source = NULL;
    if (good && automatic) good = detect_all(a, &known, each, &source);
    if (!good) {
        reply_error(c, 503, "out of memory for languages");
    } else {
        good = name ? choose_by_name(c, a, name, automatic ? NULL : source, target)
                    : choose_by_languages(c, a, source, target);
    }
    if (good && target) a->target = model_target(a->model, target);
    for (int i = 0; good && i < a->texts; i++) {
        struct ask_text *t = &a->text[i];
        /* strings of another model end with that */
        const char *said = automatic ? t->source : source;
        t->source = said ? model_source(a->model, said) : NULL;
        t->unchanged = is_in_target(a, t);
    }
    known_languages_release(&known);
    return good;
}

/* ---- the task ---- */

static struct heed_request request_of(const struct ask *a, const struct document_line *line)
{
    return (struct heed_request){.text = line->text,
                                 .options = line->align ? &a->aligned : &a->options,
                                 .prefix = a->prefix,
                                 .required = (const char *const *)a->required,
                                 .banned = (const char *const *)a->banned,
                                 .required_n = a->required_n,
                                 .banned_n = a->banned_n};
}

/* False after an error reply. */
static bool make_lines(struct call *c, struct ask *a)
{
    enum { LINES_MOST = 100000 }; /* each needs some hundred bytes, even if it is empty */
    size_t lines = 0;
    for (int i = 0; i < a->texts; i++) {
        a->text[i].first = (int)lines;
        if (!a->text[i].unchanged) lines += (size_t)a->text[i].document->lines;
    }
    if (lines > LINES_MOST) {
        reply_error(c, 413, "The texts have %zu lines, expected at most %d", lines, LINES_MOST);
        return false;
    }
    a->options.trace = a->tree && lines == 1;
    a->options.to = a->model->from[0] || !a->model->languages ? NULL : a->target;
    a->aligned = a->options;
    a->aligned.align = true;
    a->task.line = calloc(lines + 1, sizeof *a->task.line);
    if (!a->task.line) {
        reply_error(c, 503, "out of memory for %zu lines", lines);
        return false;
    }
    for (int i = 0; i < a->texts; i++) {
        const struct ask_text *t = &a->text[i];
        for (int j = 0; !t->unchanged && j < t->document->lines; j++) {
            a->task.line[a->task.lines++].request = request_of(a, &t->document->line[j]);
        }
    }
    return true;
}

void ask_submit(struct call *c, struct ask *a, void (*finish)(struct call *c))
{
    const struct serve_options *o = &c->server->o;
    if (!make_lines(c, a)) {
        ask_free(a);
        return;
    }
    struct task *t = &a->task;
    t->wake = c->wake;
    t->user = c;
    t->deadline = o->timeout ? worker_now() + o->timeout : 0;
    t->attention = a->attention && t->lines == 1;
    if (t->lines == 0) {
        t->state = TASK_DONE;
    } else if (!worker_put(model_worker(a->model), t)) {
        reply_error(c, 503, "%d requests wait already", o->max_queue);
        ask_free(a);
        return;
    }
    c->task = t;
    c->finish = finish;
}

/* ---- what it has become ---- */

bool ask_is_good(struct call *c, const struct ask *a)
{
    for (int i = 0; i < a->task.lines; i++) {
        const struct heed_answer *answer = a->task.line[i].answer;
        if (!answer->status) continue;
        /* Every option is right by itself here, but they contradict each other or the model. */
        reply_error(c, answer->status == HEED_EARG ? 409 : 500, "Cannot translate text: %s",
                    answer->why);
        return false;
    }
    return true;
}

int ask_results(const struct ask *a, int i)
{
    const struct ask_text *t = &a->text[i];
    int most = 1;
    for (int j = 0; !t->unchanged && j < t->document->lines; j++) {
        const struct heed_answer *answer = a->task.line[t->first + j].answer;
        if (answer && answer->n > most) most = answer->n;
    }
    return most;
}

const struct heed_result *ask_result(const struct ask *a, int i, int j, int k)
{
    const struct heed_answer *answer = a->task.line[a->text[i].first + j].answer;
    return answer ? &answer->result[k < answer->n ? k : answer->n - 1] : NULL;
}

void ask_join(struct buffer *out, const struct ask *a, int i, int k, size_t *at)
{
    const struct ask_text *t = &a->text[i];
    const struct document *d = t->document;
    if (t->unchanged) {
        buffer_put(out, d->text, d->n);
        return;
    }
    const struct heed_result **result = calloc((size_t)d->lines + 1, sizeof *result);
    struct heed_result *partial = calloc((size_t)d->lines + 1, sizeof *partial);
    for (int j = 0; result && partial && j < d->lines; j++) {
        result[j] = ask_result(a, i, j, k);
        const char *begun = result[j] ? NULL : a->task.line[t->first + j].partial;
        if (!begun) continue;
        partial[j] = (struct heed_result){.text = begun, .len = strlen(begun)};
        result[j] = &partial[j];
    }
    out->failed = out->failed || !result || !partial;
    if (!out->failed) document_join(out, d, result, at);
    free(result);
    free(partial);
}
