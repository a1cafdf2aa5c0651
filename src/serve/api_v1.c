/*
 * api_v1.c - POST /v1/translate and GET /v1/models: all that the library tells of a translation.
 */
#include "serve/api_v1.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "serve/stream.h"
#include "serve/utf8.h"

/* ---- members of the body ---- */

/* A member that sets an option. Exactly one of the pointers is set. */
struct member {
    const char *name;
    int *integer;
    float *number;
    uint64_t *seed;
    bool *flag;
    double min, max;
};

/* 4.0 is a whole number, as JSON Schema has it. All limits are exact in a double. */
static bool set_number(const struct member *m, const json_t *value)
{
    double x = json_number_value(value);
    if (!json_is_number(value) || !(x >= m->min && x <= m->max)) return false;
    if (!m->number && x != (double)(long long)x) return false;
    if (m->integer) *m->integer = (int)x;
    if (m->seed) *m->seed = (uint64_t)x;
    if (m->number) *m->number = (float)x;
    return true;
}

/* Sets what the body has of these members; false after an error reply. */
static bool set_members(struct call *c, const struct member *m, int n)
{
    for (int i = 0; i < n; i++) {
        const json_t *value = json_object_get(c->json, m[i].name);
        if (!value) continue;
        if (m[i].flag && json_is_boolean(value)) {
            *m[i].flag = json_is_true(value);
        } else if (m[i].flag) {
            reply_error(c, 400, "%s is no boolean", m[i].name);
            return false;
        } else if (!set_number(&m[i], value)) {
            reply_error(c, 400, "%s is not %s of %.10g to %.10g", m[i].name,
                        m[i].number ? "a number" : "a whole number", m[i].min, m[i].max);
            return false;
        }
    }
    return true;
}

static bool read_options(struct call *c, struct ask *a, bool *streams)
{
    enum { LONGEST = 1000000 };
    struct heed_translate_options *o = &a->options;
    const struct member member[] = {
        {"beam", .integer = &o->beam, .min = 1, .max = 64},
        {"nbest", .integer = &o->nbest, .min = 1, .max = 64},
        {"length_penalty", .number = &o->length_penalty, .min = 0, .max = 10},
        {"min_length", .integer = &o->min_length, .max = LONGEST},
        {"max_length", .integer = &o->max_length, .max = LONGEST},
        {"no_repeat_ngram", .integer = &o->no_repeat_ngram, .max = LONGEST},
        {"temperature", .number = &o->temperature, .max = 100},
        {"top_k", .integer = &o->top_k, .max = 256},
        {"top_p", .number = &o->top_p, .max = 1},
        {"seed", .seed = &o->seed, .max = 1e15},
        {"align", .flag = &a->alignment},
        {"tokens", .flag = &a->tokens},
        {"attention", .flag = &a->attention},
        {"beam_tree", .flag = &a->tree},
        {"stream", .flag = streams},
    };
    if (!set_members(c, member, sizeof member / sizeof member[0])) return false;
    if (o->beam < o->nbest) o->beam = o->nbest;
    o->align = a->alignment && !a->html;
    return true;
}

/* A list of at most `most` phrases; false after an error reply. */
static bool read_phrases(struct call *c, const char *name, int most, char ***out, int *n)
{
    const json_t *list = json_object_get(c->json, name);
    size_t size = json_array_size(list);
    if (!list) return true;
    bool good = json_is_array(list) && size <= (size_t)most;
    for (size_t i = 0; good && i < size; i++) {
        good = json_string_length(json_array_get(list, i)) > 0;
    }
    if (!good) {
        reply_error(c, 400, "%s is no list of at most %d strings that are not empty", name, most);
        return false;
    }
    *out = calloc(size + 1, sizeof **out);
    for (size_t i = 0; *out && i < size; i++) {
        (*out)[i] = strdup(json_string_value(json_array_get(list, i)));
        if (!(*out)[i]) break;
        *n = (int)i + 1;
    }
    if (*out && *n == (int)size) return true;
    reply_error(c, 503, "out of memory for %s", name);
    return false;
}

/* A member that is a string, or absent (NULL in *out); false after an error reply. */
static bool read_string(struct call *c, const char *name, const char **out)
{
    const json_t *value = json_object_get(c->json, name);
    *out = json_string_value(value);
    if (*out || !value) return true;
    reply_error(c, 400, "%s is no string", name);
    return false;
}

/* The prefix and the phrases are read for every line by itself, which takes time. */
static bool check_constraints(struct call *c, const struct ask *a)
{
    enum { CHARACTERS_MOST = 10000 };
    size_t n = a->prefix ? utf8_count(a->prefix, strlen(a->prefix)) : 0;
    for (int i = 0; i < a->required_n; i++) n += utf8_count(a->required[i], strlen(a->required[i]));
    for (int i = 0; i < a->banned_n; i++) n += utf8_count(a->banned[i], strlen(a->banned[i]));
    if (n <= CHARACTERS_MOST) return true;
    reply_error(c, 413, "prefix, required and banned have %zu characters, expected at most %d", n,
                CHARACTERS_MOST);
    return false;
}

static bool read_constraints(struct call *c, struct ask *a)
{
    enum { REQUIRED_MOST = 16, BANNED_MOST = 256 };
    const char *prefix;
    if (!read_string(c, "prefix", &prefix)) return false;
    if (prefix && *prefix && !(a->prefix = strdup(prefix))) {
        reply_error(c, 503, "out of memory for a prefix");
        return false;
    }
    if (!read_phrases(c, "required", REQUIRED_MOST, &a->required, &a->required_n) ||
        !read_phrases(c, "banned", BANNED_MOST, &a->banned, &a->banned_n) ||
        !check_constraints(c, a)) {
        return false;
    }
    if (a->required_n == 0 || a->options.temperature == 0) return true;
    reply_error(c, 400, "temperature is %g, expected 0: sampling finds no required phrases",
                (double)a->options.temperature);
    return false;
}

/* The texts of the body; NULL after an error reply. */
static struct ask *read_texts(struct call *c, bool html)
{
    const json_t *text = json_object_get(c->json, "text");
    size_t n = json_is_array(text) ? json_array_size(text) : 1;
    size_t most = (size_t)c->server->o.max_text;
    if (n > (size_t)c->server->o.max_texts) {
        reply_error(c, 413, "There are %zu texts, expected at most %d", n, c->server->o.max_texts);
        return NULL;
    }
    struct ask *a = ask_new(c, (int)n, html);
    for (int i = 0; a && i < a->texts; i++) {
        const json_t *one = json_is_array(text) ? json_array_get(text, (size_t)i) : text;
        const char *string = json_string_value(one);
        size_t len = json_string_length(one), count = string ? utf8_count(string, len) : 0;
        if (!string) {
            reply_error(c, 400, "text is no string, and no list of strings");
        } else if (count > most) {
            reply_error(c, 413, "A text has %zu characters, expected at most %zu", count, most);
        } else if (ask_set_text(c, a, i, string, len)) {
            continue;
        }
        ask_free(a);
        return NULL;
    }
    return a;
}

/* ---- the answer ---- */

static json_t *flags_of(unsigned flags)
{
    json_t *list = json_array();
    for (int i = 0; heed_flag_name(i); i++) {
        if (flags & 1u << i) json_array_append_new(list, json_string(heed_flag_name(i)));
    }
    return list;
}

static const char *piece_of(const struct ask *a, int32_t id)
{
    const char *piece = heed_tokenizer_piece(heed_model_tokenizer(a->model->heed), id);
    return piece ? piece : "";
}

static void add_tokens(json_t *list, const struct ask *a, const struct heed_result *r)
{
    for (int i = 0; i < r->tokens; i++) {
        const char *piece = piece_of(a, r->id[i]);
        json_array_append_new(list, json_pack("{so sf}", "piece", json_text(piece, strlen(piece)),
                                              "logp", (double)r->token_logp[i]));
    }
}

/* A place in a text that moves from word to word, so that the text before it is not counted again
 * for every word. */
struct place {
    const char *text;
    size_t at, units; /* in bytes, and in UTF-16 code units */
};

static size_t units_at(struct place *p, size_t at)
{
    if (at >= p->at) {
        p->units += utf8_utf16_units(p->text + p->at, at - p->at);
    } else {
        p->units -= utf8_utf16_units(p->text + at, p->at - at);
    }
    p->at = at;
    return p->units;
}

/* A word of the line that begins at byte `line`. */
static json_t *span_of(struct place *p, size_t line, struct heed_span word)
{
    size_t at = units_at(p, line + word.at), end = units_at(p, line + word.at + word.len);
    return json_pack("[II]", (json_int_t)at, (json_int_t)(end - at));
}

/* The links of one line, whose source begins at byte `from` of the document and whose translation
 * at byte `to` of the whole. */
static void add_links(json_t *list, const struct heed_alignment *l, struct place *source,
                      size_t from, struct place *target, size_t to)
{
    for (int t = 0; l && t < l->targets; t++) {
        if (l->link[t] < 0) continue;
        json_array_append_new(list, json_pack("{so so}", "source",
                                              span_of(source, from, l->source[l->link[t]]),
                                              "target", span_of(target, to, l->target[t])));
    }
}

/* Translation k of text i. */
static json_t *result_of(const struct ask *a, int i, int k)
{
    const struct ask_text *t = &a->text[i];
    const struct document *d = t->document;
    struct buffer text = {0};
    size_t *at = calloc((size_t)d->lines + 1, sizeof *at);
    double score = 0, logp = 0;
    unsigned flags = 0;
    json_t *tokens = a->tokens ? json_array() : NULL;
    json_t *links = a->alignment && k == 0 && !a->html ? json_array() : NULL;
    if (at) ask_join(&text, a, i, k, at);
    struct place source = {.text = d->text}, target = {.text = text.v};
    for (int j = 0; at && text.v && !t->unchanged && j < d->lines; j++) {
        const struct heed_result *r = ask_result(a, i, j, k);
        score += (double)r->score;
        logp += (double)r->logp;
        flags |= r->flags;
        if (tokens) add_tokens(tokens, a, r);
        if (links) add_links(links, r->alignment, &source, d->line[j].at, &target, at[j]);
    }
    json_t *text_json = at && !text.failed ? json_text(text.v ? text.v : "", text.n) : NULL;
    json_t *out = json_pack("{so sf sf so so* so*}", "text", text_json, "score", score, "logp",
                            logp, "flags", flags_of(flags), "tokens", tokens, "alignment", links);
    buffer_release(&text);
    free(at);
    return out;
}

static json_t *tree_of(const struct ask *a, const struct heed_answer *answer)
{
    json_t *list = json_array();
    for (int i = 0; i < answer->beams; i++) {
        const struct heed_beam_node *b = &answer->beam[i];
        const char *piece = piece_of(a, b->id);
        json_array_append_new(list,
                              json_pack("{si so sf sf sb sb si}", "parent", b->parent, "piece",
                                        json_text(piece, strlen(piece)), "logp", (double)b->logp,
                                        "score", (double)b->score, "kept", b->kept, "finished",
                                        b->finished, "result", b->result));
    }
    return list;
}

/* The attention of the ask's only line, or why there is none. only: the text has that line. */
static void add_attention(json_t *out, const struct ask *a, bool only)
{
    char *text = NULL;
    struct heed_error err = {0};
    if (only && a->task.seen) {
        const struct heed_attention_view all = {0};
        heed_attention_picture(a->task.seen, HEED_PICTURE_JSON, &all, &text, &err);
        json_object_set_new(out, "attention", json_loads(text ? text : "null", JSON_DECODE_ANY, 0));
        free(text);
    } else {
        const char *why = only && a->task.unseen
                              ? a->task.unseen
                              : "attention is shown for a request of one line only";
        json_object_set_new(out, "attention_error", json_string(why));
    }
}

json_t *v1_translation(const struct ask *a, int i)
{
    const struct ask_text *t = &a->text[i];
    json_t *results = json_array(), *out = json_object();
    int n = ask_results(a, i);
    for (int k = 0; k < n; k++) json_array_append_new(results, result_of(a, i, k));
    if (t->source) json_object_set_new(out, "source", json_string(t->source));
    if (t->detected && t->source) {
        json_object_set_new(
            out, "detected",
            json_pack("{ss sf}", "language", t->source, "confidence", (double)t->confidence));
    }
    if (a->target) json_object_set_new(out, "target", json_string(a->target));
    json_object_set_new(out, "results", results);
    /* whether the only line of the request is of this text */
    bool only = a->task.lines == 1 && !t->unchanged && t->document->lines == 1;
    const struct heed_answer *answer = only ? a->task.line[0].answer : NULL;
    if (answer && answer->beam) json_object_set_new(out, "beam_tree", tree_of(a, answer));
    if (a->attention && !t->unchanged) add_attention(out, a, only);
    return out;
}

static void finish(struct call *c)
{
    const struct ask *a = ask_of(c);
    if (!ask_is_good(c, a)) return;
    json_t *list = json_array();
    for (int i = 0; i < a->texts; i++) json_array_append_new(list, v1_translation(a, i));
    reply_json(c, 200, json_pack("{ss so}", "model", a->model->name, "translations", list));
}

/* A translation has fewer tokens than max_length says and the model takes. */
static void limit_min_length(struct ask *a)
{
    struct heed_translate_options *o = &a->options;
    int most = heed_model_config(a->model->heed)->max_length;
    if (o->max_length > 0 && o->max_length < most) most = o->max_length;
    if (o->min_length >= most) o->min_length = most - 1;
}

/* Refuses members that there are none of, such as mistyped ones, which would have no effect; false
 * after an error reply. */
static bool check_members(struct call *c)
{
    static const char *const known[] = {
        "text",  "source",     "target",         "model",           "format",      "beam",
        "nbest", "min_length", "max_length",     "no_repeat_ngram", "temperature", "top_k",
        "top_p", "seed",       "length_penalty", "prefix",          "required",    "banned",
        "align", "tokens",     "attention",      "beam_tree",       "stream",      "api_key"};
    enum { KNOWN = sizeof known / sizeof known[0] };
    const char *name;
    json_t *value;
    json_object_foreach (c->json, name, value) {
        const char *guess = NULL;
        int i = 0;
        while (i < KNOWN && strcmp(known[i], name) != 0) i++;
        if (i < KNOWN) continue;
        for (i = 0; i < KNOWN; i++) guess = heed_nearer(name, guess, known[i]);
        reply_error(c, 400, "There is no member %.60s%s%s%s", name, guess ? "; did you mean " : "",
                    guess ? guess : "", guess ? "?" : "");
        return false;
    }
    return true;
}

static bool accepts_events(const struct call *c)
{
    return c->accept && strstr(c->accept, "text/event-stream");
}

void api_v1_translate(struct call *c)
{
    const char *source = NULL, *target = NULL, *model = NULL, *format = NULL;
    bool streams = accepts_events(c);
    if (!c->json) {
        reply_error(c, 415, "The body is no JSON, expected Content-Type: application/json");
        return;
    }
    if (!check_members(c) || !read_string(c, "source", &source) ||
        !read_string(c, "target", &target) || !read_string(c, "model", &model) ||
        !read_string(c, "format", &format)) {
        return;
    }
    if (!model && !target) {
        reply_error(c, 400, "target is missing");
        return;
    }
    if (format && strcmp(format, "text") != 0 && strcmp(format, "html") != 0) {
        reply_error(c, 400, "format is %.40s, expected text or html", format);
        return;
    }
    struct ask *a = read_texts(c, format && !strcmp(format, "html"));
    if (!a) return;
    if (!read_options(c, a, &streams) || !read_constraints(c, a) ||
        !ask_choose_model(c, a, model, source, target, true)) {
        ask_free(a);
        return;
    }
    limit_min_length(a);
    a->task.news = streams;
    ask_submit(c, a, finish);
    if (streams && c->task) stream_translation(c);
}

/* ---- GET /v1/models ---- */

static json_t *config_of(const struct heed_config *config)
{
    json_t *out = json_object();
    const struct heed_config_field *f;
    for (int i = 0; (f = heed_config_field_at(i)); i++) {
        const char *at = (const char *)config + f->offset;
        json_t *value = NULL;
        switch (f->type) {
        case HEED_FIELD_INTEGER:
            value = json_integer(*(const int *)(const void *)at);
            break;
        case HEED_FIELD_RATE:
            value = json_real((double)*(const float *)(const void *)at);
            break;
        case HEED_FIELD_KIND:
            value = json_string(f->kinds[*(const int *)(const void *)at]);
            break;
        case HEED_FIELD_SWITCH:
            value = json_boolean(*(const bool *)at);
            break;
        }
        json_object_set_new(out, f->name, value);
    }
    return out;
}

static json_t *model_json(const struct model *m)
{
    static const char *const weights[] = {
        [HEED_WEIGHTS_F32] = "f32", [HEED_WEIGHTS_BF16] = "bf16", [HEED_WEIGHTS_INT8] = "int8"};
    const struct heed_config *config = heed_model_config(m->heed);
    json_t *languages = json_array();
    for (int i = 0; i < m->languages; i++) {
        json_array_append_new(languages, json_string(m->language[i]));
    }
    return json_pack("{ss so sI ss s[ii] si so}", "name", m->name, "languages", languages,
                     "parameters", (json_int_t)heed_model_parameters(m->heed), "weights",
                     weights[heed_model_weights(m->heed)], "layers", config->encoder_layers,
                     config->decoder_layers, "heads", config->heads, "config", config_of(config));
}

void api_v1_models(struct call *c)
{
    struct model *m;
    json_t *list = json_array();
    for (int i = 0; (m = models_at(c->server->models, i)); i++) {
        json_array_append_new(list, model_json(m));
        model_release(m);
    }
    reply_json(c, 200, json_pack("{so}", "models", list));
}
