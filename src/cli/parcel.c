/*
 * parcel.c - see parcel.h.
 *
 * Every item begins at a multiple of ALIGN bytes, so that arrays can be used where they lie. Texts
 * end in a NUL. Both sides are processes of one job on machines of one kind, so numbers are copied
 * as they are in memory.
 */
#include "cli/parcel.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 8 };

/* ---- writing ---- */

struct writer {
    char *v;
    size_t n, cap;
    bool failed; /* out of memory */
};

static void put(struct writer *w, const void *data, size_t bytes)
{
    size_t need = w->n + (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (need > w->cap && !w->failed) {
        char *more = realloc(w->v, need + need / 2);
        w->failed = !more;
        if (more) w->v = more;
        if (more) w->cap = need + need / 2;
    }
    if (w->failed) return;
    memset(w->v + w->n, 0, need - w->n);
    if (bytes) memcpy(w->v + w->n, data, bytes);
    w->n = need;
}

static void put_number(struct writer *w, int64_t x)
{
    put(w, &x, sizeof x);
}

/* A text may be NULL. */
static void put_text(struct writer *w, const char *text)
{
    size_t bytes = text ? strlen(text) + 1 : 0;
    put_number(w, (int64_t)bytes);
    put(w, text, bytes);
}

static bool finish(struct writer *w, char **out, size_t *bytes)
{
    if (w->failed) {
        free(w->v);
        return false;
    }
    *out = w->v;
    *bytes = w->n;
    return true;
}

/* ---- reading ---- */

static const void *get(const char **at, size_t bytes)
{
    const void *item = *at;
    *at += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return item;
}

static int64_t get_number(const char **at)
{
    int64_t x;
    memcpy(&x, get(at, sizeof x), sizeof x);
    return x;
}

static const char *get_text(const char **at)
{
    size_t bytes = (size_t)get_number(at);
    const char *text = get(at, bytes);
    return bytes ? text : NULL;
}

/* ---- requests ---- */

bool requests_pack(const struct heed_request *request, int n, const char *untagged, char **out,
                   size_t *bytes)
{
    struct writer w = {0};
    put_number(&w, n);
    for (int i = 0; i < n; i++) {
        put_text(&w, request[i].text == untagged ? NULL : request[i].text);
        put_text(&w, request[i].given);
    }
    return finish(&w, out, bytes);
}

int requests_unpack(struct heed_request *request, int max, const char *untagged, const char *bytes)
{
    int n = (int)get_number(&bytes);
    if (n > max) n = max;
    for (int i = 0; i < n; i++) {
        const char *text = get_text(&bytes);
        request[i].text = text ? text : untagged;
        request[i].given = get_text(&bytes);
    }
    return n;
}

/* ---- answers ---- */

static void put_texts(struct writer *w, const char *const *text, int n)
{
    put_number(w, n);
    for (int i = 0; i < n; i++) put_text(w, text[i]);
}

static void put_alignment(struct writer *w, const struct heed_alignment *a)
{
    put_number(w, a != NULL);
    if (!a) return;
    put_number(w, a->sources);
    put_number(w, a->targets);
    put(w, a->source, (size_t)a->sources * sizeof *a->source);
    put(w, a->target, (size_t)a->targets * sizeof *a->target);
    put(w, a->link, (size_t)a->targets * sizeof *a->link);
}

/* Numbers of a result besides its arrays. */
struct figures {
    size_t len;
    int tokens;
    unsigned flags;
    float logp, score;
};

static void put_result(struct writer *w, const struct heed_result *r)
{
    struct figures f = {r->len, r->tokens, r->flags, r->logp, r->score};
    put(w, &f, sizeof f);
    put(w, r->text, r->len + 1);
    put(w, r->id, (size_t)r->tokens * sizeof *r->id);
    put(w, r->token_logp, (size_t)r->tokens * sizeof *r->token_logp);
    put_texts(w, r->copied, r->copied_n);
    put_texts(w, r->left_out, r->left_out_n);
    put_alignment(w, r->alignment);
}

/* The structures that answers are unpacked to, besides the bytes themselves. */
struct room {
    int64_t answers, results, texts, alignments;
};

bool answers_pack(const struct heed_answer *answer, int n, char **out, size_t *bytes)
{
    struct writer w = {0};
    struct room room = {.answers = n};
    for (int i = 0; i < n; i++)
        for (int k = 0; k < answer[i].n; k++) {
            const struct heed_result *r = &answer[i].result[k];
            room.results++;
            room.texts += r->copied_n + r->left_out_n;
            room.alignments += r->alignment != NULL;
        }
    put(&w, &room, sizeof room);
    for (int i = 0; i < n; i++) {
        put_number(&w, answer[i].status);
        put_text(&w, answer[i].why);
        put_number(&w, answer[i].n);
        for (int k = 0; k < answer[i].n; k++) put_result(&w, &answer[i].result[k]);
    }
    return finish(&w, out, bytes);
}

/* Where the next structures of each kind go. */
struct unpacked {
    struct heed_result *result;
    struct heed_alignment *alignment;
    const char **text;
};

static const char *const *get_texts(const char **at, struct unpacked *u, int *n)
{
    const char **first = u->text;
    *n = (int)get_number(at);
    for (int i = 0; i < *n; i++) *u->text++ = get_text(at);
    return first;
}

static const struct heed_alignment *get_alignment(const char **at, struct unpacked *u)
{
    if (!get_number(at)) return NULL;
    struct heed_alignment *a = u->alignment++;
    a->sources = (int)get_number(at);
    a->targets = (int)get_number(at);
    a->source = get(at, (size_t)a->sources * sizeof *a->source);
    a->target = get(at, (size_t)a->targets * sizeof *a->target);
    a->link = get(at, (size_t)a->targets * sizeof *a->link);
    return a;
}

static void get_result(struct heed_result *r, const char **at, struct unpacked *u)
{
    struct figures f;
    memcpy(&f, get(at, sizeof f), sizeof f);
    *r = (struct heed_result){.len = f.len, .tokens = f.tokens, .flags = f.flags, .logp = f.logp};
    r->score = f.score;
    r->text = get(at, f.len + 1);
    r->id = get(at, (size_t)f.tokens * sizeof *r->id);
    r->token_logp = get(at, (size_t)f.tokens * sizeof *r->token_logp);
    r->copied = get_texts(at, u, &r->copied_n);
    r->left_out = get_texts(at, u, &r->left_out_n);
    r->alignment = get_alignment(at, u);
}

struct heed_answer *answers_unpack(const char *bytes, int *n)
{
    struct room room;
    const char *at = bytes;
    memcpy(&room, get(&at, sizeof room), sizeof room);
    size_t answers = (size_t)room.answers * sizeof(struct heed_answer);
    size_t results = (size_t)room.results * sizeof(struct heed_result);
    size_t alignments = (size_t)room.alignments * sizeof(struct heed_alignment);
    size_t texts = (size_t)room.texts * sizeof(char *);
    char *block = calloc(1, answers + results + alignments + texts + 1);
    if (!block) return NULL;
    struct heed_answer *answer = (struct heed_answer *)block;
    struct unpacked u = {(struct heed_result *)(block + answers),
                         (struct heed_alignment *)(block + answers + results),
                         (const char **)(block + answers + results + alignments)};
    for (int64_t i = 0; i < room.answers; i++) {
        answer[i].status = (enum heed_status)get_number(&at);
        answer[i].why = get_text(&at);
        answer[i].n = (int)get_number(&at);
        answer[i].result = u.result;
        for (int k = 0; k < answer[i].n; k++) get_result(u.result++, &at, &u);
    }
    *n = (int)room.answers;
    return answer;
}
