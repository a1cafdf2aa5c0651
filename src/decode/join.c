/*
 * join.c - from the translations of pieces to the translations of a text; see join.h.
 */
#include "decode/join.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/minmax.h"
#include "tokens/characters.h"
#include "tokens/tokenizer.h"

bool text_has(const char *text, size_t len, const char *part, size_t part_len)
{
    for (size_t i = 0; i + part_len <= len; i++)
        if (!memcmp(text + i, part, part_len)) return true;
    return false;
}

enum heed_status strings_add(struct strings *x, const char *text, size_t len,
                             struct heed_error *err)
{
    /* There is room up to the next power of two; heed_result, where v goes, has no capacity. */
    bool full = (x->n & (x->n - 1)) == 0;
    char **v = full ? realloc(x->v, ((size_t)x->n * 2 + 1) * sizeof *v) : x->v;
    if (v) x->v = v;
    char *copy = v ? strndup(text, len) : NULL;
    if (!copy) return error_memory(err, len + 1, "what cannot be spelled");
    x->v[x->n++] = copy;
    return HEED_OK;
}

void strings_release(struct strings *x)
{
    for (int i = 0; i < x->n; i++) free(x->v[i]);
    free(x->v);
    *x = (struct strings){0};
}

/* Whether the given translation, the prefix or a required phrase of a request has these bytes. */
static bool is_asked(const struct heed_request *r, const char *bytes, size_t len)
{
    if (r->given && text_has(r->given, strlen(r->given), bytes, len)) return true;
    if (r->prefix && text_has(r->prefix, strlen(r->prefix), bytes, len)) return true;
    for (int i = 0; i < r->required_n; i++)
        if (text_has(r->required[i], strlen(r->required[i]), bytes, len)) return true;
    return false;
}

/* Takes byte tokens that the model has not learned, and that the request does not ask for, out of
 * the text, and one of two spaces that come together there. */
static enum heed_status target_clean(struct target *x, const struct heed_request *r,
                                     const struct heed_tokenizer *t, struct heed_error *err)
{
    size_t to = 0, from = 0;
    bool gap = false;
    enum heed_status status = HEED_OK;
    for (size_t i = 0, next; i < x->ids.n && !status; i = next) {
        bool spelled = tokenizer_spells(t, &x->ids.v[i], 1);
        for (next = i + 1; next < x->ids.n; next++)
            if (spelled || tokenizer_spells(t, &x->ids.v[next], 1)) break;
        size_t end = x->end[next - 1];
        if (spelled || is_asked(r, x->text + from, end - from)) {
            bool spaces = gap && from < end && x->text[from] == ' ';
            from += spaces && (to == 0 || x->text[to - 1] == ' ');
            for (; i < next; i++) { /* the ends of these tokens, and the bytes up to them */
                while (from < x->end[i]) x->text[to++] = x->text[from++];
                x->end[i] = to;
            }
            gap = false;
        } else {
            status = strings_add(&x->left_out, x->text + from, end - from, err);
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

/* Like target_make, of the pieces from `first` to before `last`. */
static enum heed_status target_of_pieces(struct target *x, const struct pieces *p,
                                         const struct heed_tokenizer *t, int first, int last,
                                         int rank, struct heed_error *err)
{
    size_t n = 0;
    for (int i = first; i < last; i++) n += p->sentence[i].out[rank].ids.n;
    x->ids = (struct heed_ids){malloc((n + 1) * sizeof *x->ids.v), 0, n};
    x->end = malloc((n + 1) * sizeof *x->end);
    if (!x->ids.v || !x->end) return error_memory(err, n * sizeof *x->end, "a translation");
    for (int i = first; i < last; i++) {
        const struct heed_ids *y = &p->sentence[i].out[rank].ids;
        if (y->n) memcpy(x->ids.v + x->ids.n, y->v, y->n * sizeof *y->v);
        x->ids.n += y->n;
    }
    enum heed_status status = tokenizer_decode_ends(t, x->ids.v, n, &x->text, &x->len, x->end, err);
    if (!status && !tokenizer_spells(t, x->ids.v, n)) status = target_clean(x, p->request, t, err);
    return status;
}

enum heed_status target_make(struct target *x, const struct pieces *p,
                             const struct heed_tokenizer *t, int part, int rank,
                             struct heed_error *err)
{
    return target_of_pieces(x, p, t, p->part[part].first, p->part[part + 1].first, rank, err);
}

void target_release(struct target *x)
{
    free(x->ids.v);
    free(x->text);
    free(x->end);
    strings_release(&x->left_out);
}

struct string {
    char *v;
    size_t n, cap;
};

static enum heed_status append(struct string *s, const char *text, size_t len,
                               struct heed_error *err)
{
    enum heed_status status =
        array_reserve(&s->v, &s->cap, s->n + len + 1, 1, "a translation", err);
    if (status) return status;
    memcpy(s->v + s->n, text, len);
    s->n += len;
    s->v[s->n] = '\0';
    return HEED_OK;
}

/* Appends the white space before a part. One space or none depends on the language of the
 * translation: there is no space behind a Chinese character. Other white space stays as it was. */
static enum heed_status append_gap(struct string *s, const char *gap, size_t len,
                                   struct heed_error *err)
{
    if (s->n == 0) return HEED_OK;
    if (len == 0 || (len == 1 && *gap == ' '))
        return char_is_wide(char_before(s->v, s->n)) ? HEED_OK : append(s, " ", 1, err);
    return append(s, gap, len, err);
}

/* Appends translation `rank` of a part up to the piece before `last`. */
static enum heed_status append_part(struct string *s, struct strings *left_out,
                                    const struct pieces *p, const struct heed_tokenizer *t,
                                    int part, int last, int rank, struct heed_error *err)
{
    const struct part *x = &p->part[part];
    struct target target = {0};
    const char *gap = p->read + x->where.at - x->gap;
    enum heed_status status = target_of_pieces(&target, p, t, x->first, last, rank, err);
    if (!status) status = append_gap(s, gap, x->gap, err);
    x->target[rank] = s->n;
    if (!status) status = append(s, target.text, target.len, err);
    for (int i = 0; i < target.left_out.n && !status; i++)
        status = strings_add(left_out, target.left_out.v[i], strlen(target.left_out.v[i]), err);
    target_release(&target);
    return status;
}

/* The tokens, scores and flags of the pieces together. */
static enum heed_status add_up(const struct pieces *p, const struct heed_tokenizer *t, int rank,
                               struct heed_result *r, struct heed_error *err)
{
    for (int i = 0; i < p->n; i++) {
        const struct translation *x = &p->sentence[i].out[rank];
        r->tokens += (int)x->ids.n + x->ended;
    }
    int32_t *id = malloc((r->tokens + 1) * sizeof *id);
    float *logp = malloc((r->tokens + 1) * sizeof *logp);
    r->id = id, r->token_logp = logp;
    if (!id || !logp) return error_memory(err, r->tokens * sizeof *id, "a translation");
    for (int i = 0; i < p->n; i++) {
        const struct translation *x = &p->sentence[i].out[rank];
        size_t n = x->ids.n + x->ended;
        if (rank == 0) r->flags |= p->flags[i];
        if (!n) continue; /* nothing was found */
        memcpy(id, x->ids.v, x->ids.n * sizeof *id);
        memcpy(logp, x->token_score, n * sizeof *logp);
        if (x->ended) id[n - 1] = tokenizer_eos(t);
        id += n, logp += n;
        r->logp += (float)x->logp;
        r->score += (float)x->score;
    }
    return HEED_OK;
}

static enum heed_status join_empty(struct heed_result *r, struct heed_error *err)
{
    r->text = strdup("");
    return r->text ? HEED_OK : error_memory(err, 1, "a translation");
}

/* Whether translation `rank` of a text was found: of all of its pieces. */
static bool is_found(const struct pieces *p, int rank)
{
    for (int i = 0; i < p->n; i++)
        if (!p->sentence[i].out[rank].ids.v) return false;
    return p->n > 0;
}

static enum heed_status join(const struct pieces *p, const struct heed_tokenizer *t, int rank,
                             struct heed_result *result, struct heed_error *err)
{
    struct string s = {0};
    struct strings left_out = {0};
    struct heed_result sum = {0};
    enum heed_status status = append(&s, "", 0, err);
    for (int i = 0; i < p->parts && !status; i++)
        status = append_part(&s, &left_out, p, t, i, p->part[i + 1].first, rank, err);
    if (!status) status = add_up(p, t, rank, &sum, err);
    if (left_out.n) sum.flags |= HEED_FLAG_UNSPELLED;
    sum.text = s.v;
    sum.len = s.n;
    sum.left_out = (const char *const *)left_out.v;
    sum.left_out_n = left_out.n;
    *result = sum;
    return status;
}

enum heed_status text_join(const struct pieces *p, const struct heed_tokenizer *t,
                           struct heed_result *result, int *found, struct heed_error *err)
{
    *found = 1;
    if (p->refused) return join_empty(result, err);
    enum heed_status status = join(p, t, 0, result, err);
    for (; *found < p->nbest && is_found(p, *found) && !status; (*found)++)
        status = join(p, t, *found, &result[*found], err);
    return status;
}

enum heed_status text_so_far(const struct pieces *p, const struct heed_tokenizer *t, int n,
                             char **out, struct heed_error *err)
{
    struct string s = {0};
    struct strings left_out = {0};
    enum heed_status status = append(&s, "", 0, err);
    for (int i = 0; i < p->parts && p->part[i].first < n && !status; i++)
        status = append_part(&s, &left_out, p, t, i, int_min(n, p->part[i + 1].first), 0, err);
    strings_release(&left_out);
    if (status) {
        free(s.v);
        return status;
    }
    /* The last character may be spelled in bytes of which some are still to come. */
    while (s.n >= 3 && !memcmp(s.v + s.n - 3, "\xef\xbf\xbd", 3)) s.v[s.n -= 3] = '\0';
    *out = s.v;
    return HEED_OK;
}
