/*
 * pieces.c - from texts to what a search takes, and back; see pieces.h.
 */
#include "decode/pieces.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tokens/characters.h"
#include "tokens/sentences.h"
#include "tokens/tokenizer.h"

enum {
    LONG_TEXT = 100,   /* tokens; a longer one of several sentences is not translated at once */
    SHORT_SENTENCE = 4 /* tokens; a shorter one goes with the next, for what looks like the end of
                        * a sentence may be an abbreviation or a list */
};

void pieces_release(struct pieces *p)
{
    for (int i = 0; p->out && i < p->n * p->nbest; i++) translation_release(&p->out[i]);
    for (int i = 0; p->wish && i < p->n; i++) free(p->wish[i].prefix.v);
    for (int i = 0; p->phrases && i < p->texts; i++) {
        for (int k = 0; k < p->phrases[i].n; k++) free(p->phrases[i].v[k].v);
        free(p->phrases[i].v);
    }
    for (int i = 0; p->refused && i < p->texts; i++) free(p->refused[i]);
    free(p->refused);
    for (int i = 0; p->given && i < p->texts; i++) {
        spelling_release(&p->spelling[i]);
        spelling_release(&p->given[i]);
    }
    free(p->read);
    free(p->spelling);
    free(p->given);
    free(p->target);
    free(p->ids.v);
    free(p->part);
    free(p->text);
    free(p->phrases);
    free(p->tagged);
    free(p->src);
    free(p->wish);
    free(p->out);
    free(p->flags);
}

void pieces_of(const struct pieces *p, int text, int *first, int *last)
{
    *first = p->part[p->text[text]].first;
    *last = p->part[p->text[text + 1]].first;
}

enum heed_status pieces_refuse(struct pieces *p, int text, const struct heed_error *why,
                               struct heed_error *err)
{
    int first, last;
    pieces_of(p, text, &first, &last);
    for (int i = first; i < last; i++) p->src[i].n = p->wish[i].prefix.n = 0;
    if (!p->refused[text]) p->refused[text] = malloc(sizeof *why);
    if (!p->refused[text]) return error_memory(err, sizeof *why, "a text that is refused");
    *p->refused[text] = *why;
    return HEED_OK;
}

/* Whether c is a Chinese, Japanese or full-width character, between which there are no spaces. */
static bool is_wide(int32_t c)
{
    return (c >= 0x2e80 && c <= 0x9fff) || (c >= 0xff00 && c <= 0xff65);
}

/* ---- from texts to pieces ---- */

/* at: of its ids */
static enum heed_status part_add(struct pieces *p, size_t at, struct heed_span where, size_t gap,
                                 struct heed_error *err)
{
    if (p->parts == p->parts_cap) {
        int cap = p->parts_cap ? p->parts_cap * 2 : 64;
        struct part *v =
            p->parts_cap > INT_MAX / 4 ? NULL : realloc(p->part, (size_t)cap * sizeof *v);
        if (!v) return error_memory(err, (size_t)cap * sizeof *v, "sentences");
        p->part = v;
        p->parts_cap = cap;
    }
    p->part[p->parts++] = (struct part){.at = at, .where = where, .gap = gap};
    return HEED_OK;
}

/* The sentences of a long text, those that are short together with the next. */
static enum heed_status fill_sentences(struct pieces *p, const struct heed_tokenizer *t,
                                       const char *text, const struct spans *s,
                                       struct heed_error *err)
{
    enum heed_status status = HEED_OK;
    size_t before = s->v[0].at; /* the end of the last part */
    for (size_t i = 0; i < s->n && !status;) {
        size_t at = p->ids.n, start = s->v[i].at, end = start;
        for (; i < s->n && !status && p->ids.n - at < SHORT_SENTENCE; i++) {
            p->ids.n = at;
            end = s->v[i].at + s->v[i].len;
            status = tokenizer_encode_source(t, text + start, end - start,
                                             !p->tag_n && start == s->v[0].at, &p->ids, err);
        }
        if (!status)
            status = part_add(p, at, (struct heed_span){start, end - start}, start - before, err);
        before = end;
    }
    return status;
}

/* Appends the ids of a text without the white space around it; *all: what that is. */
static enum heed_status encode_source(struct pieces *p, const struct heed_tokenizer *t,
                                      const char *text, struct heed_span *all,
                                      struct heed_error *err)
{
    *all = text_trimmed(text, strlen(text));
    return all->len ? tokenizer_encode_source(t, text + all->at, all->len, !p->tag_n, &p->ids, err)
                    : HEED_OK;
}

static enum heed_status fill_text(struct pieces *p, const struct heed_tokenizer *t, int longest,
                                  int which, struct heed_error *err)
{
    size_t at = p->ids.n;
    struct heed_span all;
    enum heed_status status = encode_source(p, t, p->read[which], &all, err);
    bool some = p->ids.n > at; /* without an id there may be no array */
    if (!status && some && !tokenizer_spells(t, p->ids.v + at, p->ids.n - at)) {
        p->ids.n = at;
        status = spelling_make(&p->spelling[which], t, p->read[which], !p->tag_n, err);
        if (!status) {
            p->read[which] = p->spelling[which].read;
            status = encode_source(p, t, p->read[which], &all, err);
        }
    }
    const char *text = p->read[which];
    if (status || (p->ids.n == at && !p->whole)) return status;
    size_t most = longest < LONG_TEXT ? (size_t)longest : LONG_TEXT;
    struct spans s = {0};
    if (p->ids.n - at > most && !p->whole)
        status = sentences_split(&s, text, all.at + all.len, err);
    if (!status && s.n > 1) {
        p->ids.n = at;
        status = fill_sentences(p, t, text, &s, err);
    } else if (!status) {
        status = part_add(p, at, all, 0, err);
    }
    free(s.v);
    return status;
}

static enum heed_status cut_open(struct pieces *p, size_t n, struct heed_error *err)
{
    p->src = n > INT_MAX / BEAM_MAX ? NULL : calloc(n + 1, sizeof *p->src);
    p->wish = p->src ? calloc(n + 1, sizeof *p->wish) : NULL;
    p->flags = p->wish ? calloc(n + 1, sizeof *p->flags) : NULL;
    p->target = p->flags ? calloc((size_t)p->parts * p->nbest + 1, sizeof *p->target) : NULL;
    p->out = p->target ? calloc(n * p->nbest + 1, sizeof *p->out) : NULL;
    if (p->out && p->tag_n) p->tagged = malloc((p->ids.n + n * p->tag_n + 1) * sizeof *p->tagged);
    if (!p->out || (p->tag_n && !p->tagged))
        return error_memory(err, n * p->nbest * sizeof *p->out, "sentences");
    return HEED_OK;
}

/* Tokens of each piece but the last of a part of n: all, or what a sentence may have. */
static size_t piece_length(size_t n, size_t longest)
{
    return n <= longest ? n : longest < LONG_TEXT ? longest : LONG_TEXT;
}

static size_t piece_count(size_t n, size_t longest)
{
    size_t most = piece_length(n, longest);
    return n ? (n + most - 1) / most : 1;
}

/* Pieces that the model takes, now that the ids stay where they are. */
static enum heed_status cut(struct pieces *p, const struct pieces_options *o,
                            struct heed_error *err)
{
    size_t n = 0, tag = o->tag.n, longest = (size_t)o->longest - tag;
    for (int i = 0; i < p->parts; i++) n += piece_count(p->part[i + 1].at - p->part[i].at, longest);
    enum heed_status status = cut_open(p, n, err);
    if (status) return status;
    int32_t *to = p->tagged;
    for (int i = 0; i < p->parts; i++) {
        size_t at = p->part[i].at, end = p->part[i + 1].at, most = piece_length(end - at, longest);
        size_t count = piece_count(end - at, longest);
        p->part[i].first = p->n;
        for (size_t k = 0, len; k < count; k++, at += len) {
            len = end - at < most ? end - at : most;
            struct heed_ids *src = &p->src[p->n++];
            *src = (struct heed_ids){p->ids.v + at, len, 0};
            if (!tag) continue;
            memcpy(to, o->tag.v, tag * sizeof *to);
            if (len) memcpy(to + tag, src->v, len * sizeof *to);
            *src = (struct heed_ids){to, tag + len, 0};
            to += tag + len;
        }
    }
    p->part[p->parts].first = p->n;
    return HEED_OK;
}

enum heed_status pieces_fill(struct pieces *p, const struct heed_tokenizer *t,
                             const struct pieces_options *o, const char *const *text, int texts,
                             struct heed_error *err)
{
    p->nbest = o->nbest;
    p->tag_n = (int)o->tag.n;
    p->whole = o->whole;
    p->text = malloc(((size_t)texts + 1) * sizeof *p->text);
    p->phrases = calloc((size_t)texts + 1, sizeof *p->phrases);
    p->refused = calloc((size_t)texts + 1, sizeof *p->refused);
    p->read = malloc(((size_t)texts + 1) * sizeof *p->read);
    p->spelling = calloc((size_t)texts + 1, sizeof *p->spelling);
    p->given = calloc((size_t)texts + 1, sizeof *p->given);
    if (!p->text || !p->phrases || !p->refused || !p->read || !p->spelling || !p->given)
        return error_memory(err, texts * sizeof *p->text, "sentences");
    for (int i = 0; i < texts; i++) p->read[i] = text[i];
    p->texts = texts;
    enum heed_status status = HEED_OK;
    for (int i = 0; i < texts && !status; i++) {
        p->text[i] = p->parts;
        status = fill_text(p, t, o->longest - p->tag_n, i, err);
    }
    p->text[texts] = p->parts;
    /* the end of the last */
    if (!status) status = part_add(p, p->ids.n, (struct heed_span){0}, 0, err);
    if (status) return status;
    p->parts--;
    return cut(p, o, err);
}

/* ---- wishes ---- */

static enum heed_status append_id(struct heed_ids *ids, int32_t id, struct heed_error *err)
{
    int32_t *v = realloc(ids->v, (ids->n + 1) * sizeof *v);
    if (!v) return error_memory(err, (ids->n + 1) * sizeof *v, "a translation");
    v[ids->n++] = id;
    ids->v = v;
    ids->cap = ids->n;
    return HEED_OK;
}

/* What a translation has where the text is in it. The mark of a space that stands alone before a
 * text without spaces, such as a Chinese one, is only there at the start of a line. */
static enum heed_status phrase_make(struct heed_ids *ids, const struct heed_tokenizer *t,
                                    const char *text, struct heed_error *err)
{
    static const char space[] = "\xe2\x96\x81";
    enum heed_status status = heed_encode(t, text, strlen(text), ids, err);
    if (status) return status;
    if (ids->n > 1 && is_wide(char_behind(text, 0)) &&
        !strcmp(heed_tokenizer_piece(t, ids->v[0]), space))
        memmove(ids->v, ids->v + 1, --ids->n * sizeof *ids->v);
    return ids->n ? HEED_OK : error_set(err, HEED_EARG, "a required or banned text is empty");
}

static bool phrase_has(const struct heed_ids *phrase, const struct heed_ids *part)
{
    for (size_t i = 0; i + part->n <= phrase->n; i++)
        if (!memcmp(phrase->v + i, part->v, part->n * sizeof *part->v)) return true;
    return false;
}

static enum heed_status phrases_make(struct phrases *p, const struct heed_tokenizer *t,
                                     const struct heed_wish *w, struct heed_error *err)
{
    if (w->required_n < 0 || w->required_n > BEAM_REQUIRED || w->banned_n < 0 ||
        w->banned_n > BEAM_BANNED)
        return error_set(err, HEED_EARG,
                         "%d texts are required and %d banned, expected 0 to %d and 0 to %d",
                         w->required_n, w->banned_n, BEAM_REQUIRED, BEAM_BANNED);
    int n = w->required_n + w->banned_n;
    if (n == 0) return HEED_OK;
    enum heed_status status = error_strings(err, "required", w->required, w->required_n);
    if (!status) status = error_strings(err, "banned", w->banned, w->banned_n);
    if (status) return status;
    p->v = calloc(n, sizeof *p->v);
    if (!p->v) return error_memory(err, n * sizeof *p->v, "phrases");
    p->n = n;
    for (int i = 0; i < n && !status; i++)
        status = phrase_make(
            &p->v[i], t, i < w->required_n ? w->required[i] : w->banned[i - w->required_n], err);
    for (int i = 0; i < w->required_n && !status; i++)
        for (int k = w->required_n; k < n && !status; k++)
            if (phrase_has(&p->v[i], &p->v[k]))
                status = error_set(err, HEED_EARG, "\"%s\" is banned, but required \"%s\" has it",
                                   w->banned[k - w->required_n], w->required[i]);
    return status;
}

/* Whether a translation can have what is asked of it, and in at most `longest` tokens. */
static enum heed_status check_wish(const struct beam_wish *x, int longest,
                                   const struct heed_wish *w, struct heed_error *err)
{
    for (int i = 0; i < x->banned_n; i++)
        if (phrase_has(&x->prefix, &x->banned[i]))
            return error_set(err, HEED_EARG, "\"%s\" is banned, but the prefix \"%s\" has it",
                             w->banned[i], w->prefix);
    if (beam_least(x) > longest)
        return error_set(err, HEED_EARG, "what is given needs %d tokens, expected at most %d",
                         beam_least(x), longest);
    return HEED_OK;
}

/* The tokens that the translations of a text begin with. Where that is all of a translation, the
 * model is asked for what the vocabulary can spell of it. */
static enum heed_status prefix_make(struct pieces *p, const struct heed_tokenizer *t, int text,
                                    const char *prefix, struct heed_ids *ids,
                                    struct heed_error *err)
{
    enum heed_status status = heed_encode(t, prefix, strlen(prefix), ids, err);
    if (status || !p->whole) return status;
    if (!tokenizer_spells(t, ids->v, ids->n)) {
        struct spelling *x = &p->given[text];
        ids->n = 0;
        status = spelling_make(x, t, prefix, false, err);
        if (!status) {
            struct heed_span all = text_trimmed(x->read, strlen(x->read));
            status = heed_encode(t, x->read + all.at, all.len, ids, err);
        }
    }
    return status ? status : append_id(ids, tokenizer_eos(t), err);
}

/* The wish of a text for its pieces: the prefix is the first one's, what is banned is for all. */
static enum heed_status wish_text(struct pieces *p, const struct heed_tokenizer *t, int text,
                                  int longest, const struct heed_wish *w, struct heed_error *err)
{
    int first, last;
    pieces_of(p, text, &first, &last);
    if (last - first > 1 && (p->whole || w->required_n))
        return error_set(err, HEED_EARG, "it is translated in %d pieces, expected one where %s",
                         last - first, p->whole ? "it is scored" : "something is required");
    struct phrases *phrases = &p->phrases[text];
    enum heed_status status = phrases_make(phrases, t, w, err);
    struct beam_wish x = {.required = phrases->v,
                          .required_n = w->required_n,
                          .banned = phrases->v ? phrases->v + w->required_n : NULL,
                          .banned_n = w->banned_n};
    if (!status && w->prefix) status = prefix_make(p, t, text, w->prefix, &x.prefix, err);
    if (!status) status = check_wish(&x, longest, w, err);
    if (status || first == last) {
        free(x.prefix.v);
        return status;
    }
    for (int i = first; i < last; i++) {
        p->wish[i] = x;
        x.prefix = (struct heed_ids){0};
    }
    return HEED_OK;
}

enum heed_status pieces_wish(struct pieces *p, const struct heed_tokenizer *t, int longest,
                             const struct heed_wish *wish, struct heed_error *err)
{
    enum heed_status status = HEED_OK;
    p->asked = wish;
    for (int i = 0; i < p->texts && !status; i++) {
        struct heed_error why = {0};
        status = wish_text(p, t, i, longest, &wish[i], &why);
        if (status == HEED_EARG)
            status = pieces_refuse(p, i, &why, err);
        else if (status && err)
            *err = why;
    }
    return status;
}

/* ---- from pieces to texts ---- */

bool text_has(const char *text, size_t len, const char *part, size_t part_len)
{
    for (size_t i = 0; i + part_len <= len; i++)
        if (!memcmp(text + i, part, part_len)) return true;
    return false;
}

enum heed_status texts_add(struct texts *x, const char *text, size_t len, struct heed_error *err)
{
    bool full = (x->n & (x->n - 1)) == 0; /* there is room for the next power of two */
    char **v = full ? realloc(x->v, ((size_t)x->n * 2 + 1) * sizeof *v) : x->v;
    if (v) x->v = v;
    char *copy = v ? strndup(text, len) : NULL;
    if (!copy) return error_memory(err, len + 1, "what cannot be spelled");
    x->v[x->n++] = copy;
    return HEED_OK;
}

void texts_release(struct texts *x)
{
    for (int i = 0; i < x->n; i++) free(x->v[i]);
    free(x->v);
    *x = (struct texts){0};
}

/* Whether the prefix or a required phrase of the text's wish contains `what`. */
static bool is_asked(const struct pieces *p, int text, const char *what, size_t len)
{
    const struct heed_wish *w = p->asked ? &p->asked[text] : NULL;
    if (!w) return false;
    if (w->prefix && text_has(w->prefix, strlen(w->prefix), what, len)) return true;
    for (int i = 0; i < w->required_n; i++)
        if (text_has(w->required[i], strlen(w->required[i]), what, len)) return true;
    return false;
}

/* Takes the bytes out of the text that the model has not learned to spell with, and one of two
 * spaces that come together. */
static enum heed_status target_clean(struct target *x, const struct pieces *p,
                                     const struct heed_tokenizer *t, int text,
                                     struct heed_error *err)
{
    size_t to = 0, from = 0;
    bool gap = false;
    enum heed_status status = HEED_OK;
    for (size_t i = 0, next; i < x->ids.n && !status; i = next) {
        bool spelled = tokenizer_spells(t, &x->ids.v[i], 1);
        for (next = i + 1; next < x->ids.n; next++)
            if (spelled || tokenizer_spells(t, &x->ids.v[next], 1)) break;
        size_t end = x->end[next - 1];
        if (spelled || is_asked(p, text, x->text + from, end - from)) {
            bool spaces = gap && from < end && x->text[from] == ' ';
            from += spaces && (to == 0 || x->text[to - 1] == ' ');
            for (; i < next; i++) { /* the ends of these tokens, and the bytes up to them */
                while (from < x->end[i]) x->text[to++] = x->text[from++];
                x->end[i] = to;
            }
            gap = false;
        } else {
            status = texts_add(&x->left_out, x->text + from, end - from, err);
            for (; i < next; i++) x->end[i] = to;
            from = end;
            gap = true;
        }
    }
    while (gap && to && x->text[to - 1] == ' ') to--;
    for (size_t i = x->ids.n; i-- && x->end[i] > to;) x->end[i] = to;
    x->text[x->len = to] = '\0';
    return status;
}

enum heed_status target_make(struct target *x, const struct pieces *p,
                             const struct heed_tokenizer *t, int text, int part, int rank,
                             struct heed_error *err)
{
    size_t n = 0;
    const struct translation *out = p->out + rank;
    for (int i = p->part[part].first; i < p->part[part + 1].first; i++)
        n += out[(size_t)i * p->nbest].ids.n;
    x->ids = (struct heed_ids){malloc((n + 1) * sizeof *x->ids.v), 0, n};
    x->end = malloc((n + 1) * sizeof *x->end);
    if (!x->ids.v || !x->end) return error_memory(err, n * sizeof *x->end, "a translation");
    for (int i = p->part[part].first; i < p->part[part + 1].first; i++) {
        const struct heed_ids *y = &out[(size_t)i * p->nbest].ids;
        if (y->n) memcpy(x->ids.v + x->ids.n, y->v, y->n * sizeof *y->v);
        x->ids.n += y->n;
    }
    enum heed_status status = tokenizer_decode_ends(t, x->ids.v, n, &x->text, &x->len, x->end, err);
    if (!status && !tokenizer_spells(t, x->ids.v, n)) status = target_clean(x, p, t, text, err);
    return status;
}

void target_release(struct target *x)
{
    free(x->ids.v);
    free(x->text);
    free(x->end);
    texts_release(&x->left_out);
}

struct string {
    char *v;
    size_t n, cap;
};

static enum heed_status append(struct string *s, const char *text, size_t len,
                               struct heed_error *err)
{
    if (s->cap - s->n <= len) {
        size_t cap = s->cap * 2 + len + 1;
        char *v = realloc(s->v, cap);
        if (!v) return error_memory(err, cap, "a translation");
        s->v = v;
        s->cap = cap;
    }
    memcpy(s->v + s->n, text, len);
    s->n += len;
    s->v[s->n] = '\0';
    return HEED_OK;
}

/* White space between sentences stays what it was, but whether there is a space at all is for the
 * language of the translation to say. */
static enum heed_status append_gap(struct string *s, const char *gap, size_t len,
                                   struct heed_error *err)
{
    if (s->n == 0) return HEED_OK;
    if (len == 0 || (len == 1 && *gap == ' '))
        return is_wide(char_before(s->v, s->n)) ? HEED_OK : append(s, " ", 1, err);
    return append(s, gap, len, err);
}

/* Adds the translation of a part, which the ids of its pieces make together. */
static enum heed_status append_part(struct string *s, struct texts *left_out, struct pieces *p,
                                    const struct heed_tokenizer *t, int text, int part, int rank,
                                    struct heed_error *err)
{
    const struct part *x = &p->part[part];
    struct target target = {0};
    const char *gap = p->read[text] + x->where.at - x->gap;
    enum heed_status status = target_make(&target, p, t, text, part, rank, err);
    if (!status) status = append_gap(s, gap, x->gap, err);
    p->target[(size_t)part * p->nbest + rank] = s->n;
    if (!status) status = append(s, target.text, target.len, err);
    for (int i = 0; i < target.left_out.n && !status; i++)
        status = texts_add(left_out, target.left_out.v[i], strlen(target.left_out.v[i]), err);
    target_release(&target);
    return status;
}

/* What the pieces [first, last) add up to, besides the text. */
static enum heed_status add_up(const struct pieces *p, const struct heed_tokenizer *t, int first,
                               int last, int rank, struct heed_result *r, struct heed_error *err)
{
    const struct translation *x = p->out + rank;
    for (int i = first; i < last; i++)
        r->tokens += (int)x[(size_t)i * p->nbest].ids.n + x[(size_t)i * p->nbest].ended;
    int32_t *id = malloc((r->tokens + 1) * sizeof *id);
    float *logp = malloc((r->tokens + 1) * sizeof *logp);
    r->id = id, r->token_logp = logp;
    if (!id || !logp) return error_memory(err, r->tokens * sizeof *id, "a translation");
    for (int i = first; i < last; i++) {
        const struct translation *y = &x[(size_t)i * p->nbest];
        size_t n = y->ids.n + y->ended;
        if (rank == 0) r->flags |= p->flags[i];
        if (!n) continue; /* nothing was found */
        memcpy(id, y->ids.v, y->ids.n * sizeof *id);
        memcpy(logp, y->token_score, n * sizeof *logp);
        if (y->ended) id[n - 1] = tokenizer_eos(t);
        id += n, logp += n;
        r->logp += (float)y->logp;
        r->score += (float)y->score;
    }
    return HEED_OK;
}

static enum heed_status join_refused(const struct heed_error *why, struct heed_result *r,
                                     struct heed_error *err)
{
    *r = (struct heed_result){.text = strdup(""), .status = why->status, .why = strdup(why->text)};
    return r->text && r->why ? HEED_OK : error_memory(err, sizeof *why, "a text that is refused");
}

enum heed_status pieces_join(struct pieces *p, const struct heed_tokenizer *t, int text, int rank,
                             struct heed_result *r, struct heed_error *err)
{
    int first = p->text[text], last = p->text[text + 1];
    if (p->refused[text]) return rank ? HEED_OK : join_refused(p->refused[text], r, err);
    if (first == last && rank) return HEED_OK;
    for (int i = p->part[first].first; rank && i < p->part[last].first; i++)
        if (!p->out[(size_t)i * p->nbest + rank].ids.v) return HEED_OK;
    struct string s = {0};
    struct texts left_out = {0};
    struct heed_result sum = {0};
    enum heed_status status = append(&s, "", 0, err);
    for (int i = first; i < last && !status; i++)
        status = append_part(&s, &left_out, p, t, text, i, rank, err);
    if (!status) status = add_up(p, t, p->part[first].first, p->part[last].first, rank, &sum, err);
    if (left_out.n) sum.flags |= HEED_FLAG_UNSPELLED;
    sum.text = s.v;
    sum.len = s.n;
    sum.left_out = (const char *const *)left_out.v;
    sum.left_out_n = left_out.n;
    *r = sum;
    return status;
}
