/*
 * constraints.c - from the prefix and the phrases of a request to the tokens of a search; see
 * pieces.h.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "decode/pieces.h"
#include "tokens/characters.h"
#include "tokens/sentences.h"
#include "tokens/spm.h"
#include "tokens/tokenizer.h"

static enum heed_status append_id(struct heed_ids *ids, int32_t id, struct heed_error *err)
{
    enum heed_status status =
        array_reserve(&ids->v, &ids->cap, ids->n + 1, sizeof *ids->v, "a translation", err);
    if (!status) ids->v[ids->n++] = id;
    return status;
}

/* The tokens of a phrase inside of a translation. The vocabulary puts the mark of a space before
 * every line; where that mark is a token of its own and the phrase has no spaces, as in Chinese,
 * the mark is not part of the phrase. */
static enum heed_status phrase_make(struct heed_ids *ids, const struct heed_tokenizer *t,
                                    const char *text, struct heed_error *err)
{
    enum heed_status status = heed_encode(t, text, strlen(text), ids, err);
    if (status) return status;
    if (ids->n > 1 && char_is_wide(char_behind(text, 0)) &&
        !strcmp(heed_tokenizer_piece(t, ids->v[0]), SPM_SPACE))
        memmove(ids->v, ids->v + 1, --ids->n * sizeof *ids->v);
    return ids->n ? HEED_OK : error_set(err, HEED_EARG, "a required or banned phrase is empty");
}

static bool phrase_has(const struct heed_ids *phrase, const struct heed_ids *part)
{
    for (size_t i = 0; i + part->n <= phrase->n; i++)
        if (!memcmp(phrase->v + i, part->v, part->n * sizeof *part->v)) return true;
    return false;
}

static enum heed_status phrases_make(struct pieces *p, const struct heed_tokenizer *t,
                                     struct heed_error *err)
{
    const struct heed_request *r = p->request;
    int n = r->required_n + r->banned_n;
    if (n == 0) return HEED_OK;
    p->phrase = calloc(n, sizeof *p->phrase);
    if (!p->phrase) return error_memory(err, n * sizeof *p->phrase, "phrases");
    p->phrases = n;
    enum heed_status status = HEED_OK;
    for (int i = 0; i < n && !status; i++)
        status =
            phrase_make(&p->phrase[i], t,
                        i < r->required_n ? r->required[i] : r->banned[i - r->required_n], err);
    for (int i = 0; i < r->required_n && !status; i++)
        for (int k = r->required_n; k < n && !status; k++)
            if (phrase_has(&p->phrase[i], &p->phrase[k]))
                status = error_set(err, HEED_EARG, "\"%s\" is banned, but required \"%s\" has it",
                                   r->banned[k - r->required_n], r->required[i]);
    return status;
}

/* The tokens of a translation that is given, with the end mark: those of what the vocabulary can
 * spell of it. */
static enum heed_status given_make(struct pieces *p, const struct heed_tokenizer *t,
                                   struct heed_ids *ids, struct heed_error *err)
{
    const char *given = p->request->given;
    enum heed_status status = heed_encode(t, given, strlen(given), ids, err);
    if (!status && !tokenizer_spells(t, ids->v, ids->n)) {
        ids->n = 0;
        status = spelling_make(&p->given, t, given, false, err);
        if (!status) {
            struct heed_span all = text_trimmed(p->given.read, strlen(p->given.read));
            status = heed_encode(t, p->given.read + all.at, all.len, ids, err);
        }
    }
    return status ? status : append_id(ids, tokenizer_eos(t), err);
}

/* Whether a translation of at most `longest` tokens can meet the constraints. */
static enum heed_status check(const struct constraints *c, int longest,
                              const struct heed_request *r, struct heed_error *err)
{
    for (int i = 0; i < c->banned_n; i++)
        if (phrase_has(&c->prefix, &c->banned[i]))
            return error_set(err, HEED_EARG, "\"%s\" is banned, but the prefix \"%s\" has it",
                             r->banned[i], r->prefix);
    if (constraints_length(c) > longest)
        return error_set(err, HEED_EARG, "what is given needs %d tokens, expected at most %d",
                         constraints_length(c), longest);
    return HEED_OK;
}

enum heed_status constraints_make(struct pieces *p, const struct heed_tokenizer *t, int longest,
                                  struct heed_error *err)
{
    const struct heed_request *r = p->request;
    int most = p->o.max_length && !r->given ? p->o.max_length : longest;
    if (p->n > 1 && (r->given || r->required_n))
        return error_set(err, HEED_EARG, "it is translated in %d pieces, expected one where %s",
                         p->n, r->given ? "it is scored" : "something is required");
    enum heed_status status = phrases_make(p, t, err);
    struct constraints c = {.required = p->phrase,
                            .required_n = r->required_n,
                            .banned = p->phrase ? p->phrase + r->required_n : NULL,
                            .banned_n = r->banned_n};
    if (!status && r->prefix) status = heed_encode(t, r->prefix, strlen(r->prefix), &c.prefix, err);
    if (!status && r->given) status = given_make(p, t, &c.prefix, err);
    if (!status) status = check(&c, most < longest ? most : longest, r, err);
    if (status || !p->n) {
        free(c.prefix.v);
        return status;
    }
    for (int i = 0; i < p->n; i++) {
        p->sentence[i].must = c;
        c.prefix = (struct heed_ids){0};
    }
    return HEED_OK;
}
