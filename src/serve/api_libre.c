/*
 * api_libre.c - the API of LibreTranslate, with its parameters, answers and errors. Where this
 * differs from it is in docs/api.md.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/ask.h"
#include "serve/languages.h"
#include "serve/server.h"
#include "serve/utf8.h"

/* Most alternatives of a translation; a search has a hypothesis for each. */
enum { ALTERNATIVES_MOST = 15 };

static void refuse_missing(struct call *c, const char *name)
{
    reply_error(c, 400, "Invalid request: missing %s parameter", name);
}

/* ---- parameters ---- */

/* The number of alternatives, which may be written as a string; -1 after an error reply. */
static int read_alternatives(struct call *c)
{
    const json_t *number = c->json ? json_object_get(c->json, "alternatives") : NULL;
    const char *text = call_parameter(c, "alternatives");
    double n = json_number_value(number);
    char *end = NULL;
    if (text) n = (double)strtoll(text, &end, 10); /* what is too large for it becomes its limit */
    bool wrong = text ? end == text || *end : number && (!json_is_number(number) || n != floor(n));
    if (wrong) {
        reply_error(c, 400, "Invalid request: alternatives parameter is not a number");
        return -1;
    }
    if (n > ALTERNATIVES_MOST) {
        reply_error(c, 400, "Invalid request: alternatives parameter must be <= %d",
                    ALTERNATIVES_MOST);
        return -1;
    }
    return n < 0 ? 0 : (int)n;
}

/* Whether the format is HTML: 1 or 0; -1 after an error reply. */
static int read_format(struct call *c)
{
    const char *format = call_parameter(c, "format");
    const json_t *member = json_object_get(c->json, "format");
    bool none = format ? !*format : !member || json_is_null(member);
    if (none || (format && !strcmp(format, "text"))) return 0;
    if (format && !strcmp(format, "html")) return 1;
    reply_error(c, 400, "%.40s format is not supported", format ? format : "This");
    return -1;
}

static bool add_text(struct call *c, struct ask *a, int i, const char *text, size_t n)
{
    size_t most = (size_t)c->server->o.max_text, count = utf8_count(text, n);
    if (count <= most) return ask_set_text(c, a, i, text, n);
    reply_error(c, 400, "Invalid request: request (%zu) exceeds text limit (%zu)", count, most);
    return false;
}

/* A form sends every line end as CR LF; LibreTranslate sees them as LF. */
static char *unix_lines(const char *text)
{
    char *copy = strdup(text), *to = copy;
    for (const char *from = text; copy && *from; from++) {
        if (from[0] != '\r' || from[1] != '\n') *to++ = *from;
    }
    if (copy) *to = '\0';
    return copy;
}

static bool add_form_text(struct call *c, struct ask *a, const char *q)
{
    char *text = unix_lines(q);
    if (!text) reply_error(c, 503, "out of memory for a text");
    bool good = text && add_text(c, a, 0, text, strlen(text));
    free(text);
    return good;
}

static bool add_json_texts(struct call *c, struct ask *a, const json_t *q)
{
    for (int i = 0; i < a->texts; i++) {
        const json_t *one = json_is_array(q) ? json_array_get(q, (size_t)i) : q;
        if (!json_is_string(one)) {
            reply_error(c, 400,
                        "Invalid request: q parameter is no string, and no list of strings");
            return false;
        }
        if (!add_text(c, a, i, json_string_value(one), json_string_length(one))) return false;
    }
    return true;
}

/* Whether the call has a text or a list of texts, and whether these are not empty. */
static bool has_texts(const struct call *c)
{
    const json_t *q = c->json ? json_object_get(c->json, "q") : NULL;
    const char *text = call_parameter(c, "q");
    if (json_is_array(q)) return json_array_size(q) > 0;
    return text ? *text != '\0' : q && !json_is_null(q) && !json_is_false(q);
}

/* The texts of the call, which has some; NULL after an error reply. */
static struct ask *read_texts(struct call *c, bool html)
{
    const json_t *q = c->json ? json_object_get(c->json, "q") : NULL;
    size_t n = json_is_array(q) ? json_array_size(q) : 1;
    if (n > (size_t)c->server->o.max_texts) {
        reply_error(c, 400, "Invalid request: request (%zu) exceeds text limit (%d)", n,
                    c->server->o.max_texts);
        return NULL;
    }
    struct ask *a = ask_new(c, (int)n, html);
    if (a) a->list = json_is_array(q);
    bool good =
        a && (c->json ? add_json_texts(c, a, q) : add_form_text(c, a, call_parameter(c, "q")));
    if (good) return a;
    ask_free(a);
    return NULL;
}

/* ---- POST /translate ---- */

static json_t *joined(const struct ask *a, int i, int k)
{
    struct buffer b = {0};
    ask_join(&b, a, i, k, NULL);
    json_t *text = b.failed ? NULL : json_text(b.v ? b.v : "", b.n);
    buffer_release(&b);
    return text;
}

/* Translations besides the best that differ from it and from each other. HTML has none. */
static json_t *alternatives(const struct ask *a, int i, json_t *best)
{
    json_t *list = json_array();
    int n = a->html ? 0 : ask_results(a, i);
    for (int k = 1; k < n; k++) {
        json_t *text = joined(a, i, k);
        bool known = !text || json_equal(text, best) || !json_string_length(text);
        for (size_t j = 0; !known && j < json_array_size(list); j++) {
            known = json_equal(text, json_array_get(list, j));
        }
        if (!known) json_array_append(list, text);
        json_decref(text);
    }
    return list;
}

/* LibreTranslate counts confidence in percent, and calls a text of an unknown language English. */
static json_t *detected(const struct ask_text *t)
{
    double percent = (double)t->confidence * 100;
    return json_pack("{sf ss}", "confidence", t->source ? percent : 0.0, "language",
                     t->source ? t->source : "en");
}

static void finish(struct call *c)
{
    const struct ask *a = ask_of(c);
    int wanted = a->options.nbest - 1;
    if (!ask_is_good(c, a)) return;
    json_t *texts = json_array(), *others = json_array(), *languages = json_array();
    for (int i = 0; i < a->texts; i++) {
        json_t *text = joined(a, i, 0);
        json_array_append_new(others, wanted ? alternatives(a, i, text) : json_array());
        json_array_append_new(texts, text);
        json_array_append_new(languages, detected(&a->text[i]));
    }
    json_t *reply = json_object();
    const struct {
        const char *name;
        json_t *list;
        bool asked;
    } member[] = {{"translatedText", texts, true},
                  {"detectedLanguage", languages, a->automatic},
                  {"alternatives", others, wanted > 0}};
    for (int i = 0; i < 3; i++) {
        json_t *value = a->list ? member[i].list : json_array_get(member[i].list, 0);
        if (member[i].asked) json_object_set(reply, member[i].name, value);
        json_decref(member[i].list);
    }
    reply_json(c, 200, reply);
}

/* Whether the parameters are there that a translation needs; false after an error reply. */
static bool check_present(struct call *c)
{
    static const char *const name[] = {"source", "target"};
    bool good = has_texts(c);
    if (!good) refuse_missing(c, "q");
    for (int i = 0; i < 2 && good; i++) {
        const char *value = call_parameter(c, name[i]);
        good = value && *value;
        if (!good) refuse_missing(c, name[i]);
    }
    return good;
}

void api_translate(struct call *c)
{
    if (!check_present(c)) return;
    int others = read_alternatives(c), html = others < 0 ? -1 : read_format(c);
    struct ask *a = html < 0 ? NULL : read_texts(c, html);
    if (!a) return;
    if (!ask_choose_model(c, a, NULL, call_parameter(c, "source"), call_parameter(c, "target"),
                          false)) {
        ask_free(a);
        return;
    }
    a->options.nbest = others + 1;
    if (a->options.beam < a->options.nbest) a->options.beam = a->options.nbest;
    ask_submit(c, a, finish);
}

/* ---- POST /detect ---- */

static json_t *detections(const struct known_languages *k, const char *text)
{
    struct heed_detection *found = calloc((size_t)k->n + 1, sizeof *found);
    int n = found ? heed_detect_language(text, k->language, k->n, found) : 0;
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        if (found[i].confidence <= 0) continue;
        json_array_append_new(list,
                              json_pack("{sf ss}", "confidence", (double)found[i].confidence * 100,
                                        "language", found[i].language));
    }
    if (json_array_size(list) == 0) {
        json_array_append_new(list, json_pack("{sf ss}", "confidence", 0.0, "language", "en"));
    }
    free(found);
    return list;
}

void api_detect(struct call *c)
{
    struct known_languages known = {0};
    if (!has_texts(c)) refuse_missing(c, "q");
    struct ask *a = has_texts(c) ? read_texts(c, false) : NULL;
    if (!a) return;
    struct buffer all = {0};
    for (int i = 0; i < a->texts; i++) {
        buffer_put(&all, a->text[i].document->text, a->text[i].document->n);
        buffer_text(&all, " ");
    }
    bool good = known_languages_open(&known, c->server->models) && !all.failed;
    reply_json(c, 200, good ? detections(&known, all.v) : NULL);
    known_languages_release(&known);
    buffer_release(&all);
    ask_free(a);
}

/* ---- GET /languages ---- */

/* The languages that some model translates this one to. */
static json_t *targets_of(const struct known_languages *k, const char *source)
{
    json_t *list = json_array();
    for (int i = 0; i < k->n; i++) {
        bool found = false;
        for (int j = 0; j < k->held_n && !found; j++) {
            found = model_source(k->held[j], source) && model_target(k->held[j], k->language[i]);
        }
        if (found) json_array_append_new(list, json_string(k->language[i]));
    }
    return list;
}

void api_languages(struct call *c)
{
    struct known_languages known = {0};
    bool good = known_languages_open(&known, c->server->models);
    json_t *list = json_array();
    for (int i = 0; i < known.n; i++) {
        json_array_append_new(list, json_pack("{ss ss so}", "code", known.language[i], "name",
                                              language_name(known.language[i]), "targets",
                                              targets_of(&known, known.language[i])));
    }
    known_languages_release(&known);
    if (!good) {
        json_decref(list);
        list = NULL;
    }
    reply_json(c, 200, list);
}

/* ---- the others ---- */

void api_settings(struct call *c)
{
    struct known_languages known = {0};
    bool good = known_languages_open(&known, c->server->models);
    const char *target = known.n > 1 ? known.language[1] : known.n ? known.language[0] : "en";
    bool keys = c->server->keys;
    json_t *reply = json_pack(
        "{si si sb sb sb sb so s{s{ss ss} s{ss ss}}}", "charLimit", c->server->o.max_text,
        "frontendTimeout", 500, "apiKeys", keys, "keyRequired", keys, "suggestions", 0,
        "filesTranslation", 0, "supportedFilesFormat", json_array(), "language", "source", "code",
        "auto", "name", "Auto Detect", "target", "code", target, "name", language_name(target));
    known_languages_release(&known);
    if (!good) {
        json_decref(reply);
        reply = NULL;
    }
    reply_json(c, 200, reply);
}

void api_health(struct call *c)
{
    reply_json(c, 200, json_pack("{ss}", "status", "ok"));
}

void api_suggest(struct call *c)
{
    reply_error(c, 403, "Suggestions are disabled on this server.");
}

void api_file(struct call *c)
{
    reply_error(c, 403, "Files translation are disabled on this server.");
}
