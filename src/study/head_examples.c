/*
 * head_examples.c - the sentences that show best what heads do.
 *
 * For a role, it is the sentence in which the head with the largest share of that role has it to
 * the largest part. Two more are pairs of tokens in self-attention of the encoder. Sentences have
 * at most 30 tokens, so that a picture of them is easily read.
 *
 * long distance: both tokens begin words, they are at least five tokens apart and different, and
 * the weight is at least 0.3; the largest product of score and distance.
 * anaphora: a pronoun of the third person looks at an earlier word, at least two tokens before it,
 * that is likely a noun: it follows a determiner, or begins with a capital letter and does not
 * begin the sentence, or is Chinese; the largest score.
 *
 * The score of a pair is its weight, less the mean weight that all tokens of the sentence give to
 * the same key: a head that looks at one word from everywhere shows no relation of two words.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/utf8.h"
#include "study/heads.h"
#include "tokens/spm.h"
#include "tokens/tokenizer.h"

/* ---- tokens ---- */

static bool is_chinese(int32_t c)
{
    return c >= 0x3400 && c <= 0x9fff;
}

/* Letters of ASCII, Latin, Greek, Cyrillic and so on, and Chinese characters. */
static bool is_letter(int32_t c)
{
    return (c < 0x80 && isalpha(c)) || (c >= 0xc0 && c < 0x2000) || is_chinese(c);
}

static const char *const pronouns[] = {
    "it",     "its",   "he",  "his", "him", "she",  "her",   "they",  "their", "them",  "er",
    "sie",    "es",    "ihn", "ihm", "ihr", "ihre", "ihrer", "ihren", "sein",  "seine", "seiner",
    "seinen", "ihnen", "它",  "他",  "她",  "它们", "他们",  "她们",  NULL};
static const char *const determiners[] = {
    "a",   "an",  "the", "this", "that", "these", "those", "my",    "our",   "your",  "der",
    "die", "das", "dem", "den",  "des",  "ein",   "eine",  "einen", "einem", "einer", NULL};

/* Whether a text is one of the words, whatever the case of its letters. */
static bool is_one_of(const char *const *word, const char *text, size_t n)
{
    for (; *word; word++)
        if (strlen(*word) == n && strncasecmp(*word, text, n) == 0) return true;
    return false;
}

static struct token_kind kind_of(const struct spm_piece *p)
{
    const size_t space = strlen(SPM_SPACE);
    const char *text = p->text;
    size_t len = p->len, letters = 0, chinese = 0, all = 0;
    bool begins = len > space && memcmp(text, SPM_SPACE, space) == 0;
    if (begins) text += space, len -= space;
    for (size_t i = 0, n; i < len; i += n, all++) {
        int32_t c = 0;
        n = utf8_next(text + i, len - i, &c);
        if (n == 0) n = 1;
        letters += is_letter(c);
        chinese += is_chinese(c);
    }
    if (p->kind != SPM_NORMAL || all == 0) return (struct token_kind){0};
    if (letters < all || !(begins || chinese)) return (struct token_kind){.letters = letters > 0};
    bool pronoun = is_one_of(pronouns, text, len), determiner = is_one_of(determiners, text, len);
    bool word = !pronoun && !determiner && (chinese || letters >= 3);
    bool upper = isupper((unsigned char)*text) || (text[0] == '\xc3' && (text[1] & 0x20) == 0);
    return (struct token_kind){true, word, word && (chinese || upper), pronoun, determiner};
}

enum heed_status study_kinds(struct study *s, struct heed_error *err)
{
    size_t len;
    const char *data = tokenizer_bytes(s->tokenizer, &len);
    int n = s->config.vocab_size;
    struct spm_piece *piece = NULL;
    s->kind = calloc((size_t)n, sizeof *s->kind);
    if (!s->kind) return error_memory(err, (size_t)n * sizeof *s->kind, "kinds of tokens");
    enum heed_status status = spm_pieces(data, len, &piece, n, err);
    for (int i = 0; i < n && !status; i++) s->kind[i] = kind_of(&piece[i]);
    free(piece);
    return status;
}

/* ---- the best so far ---- */

enum { SHORT = 6, LONG = 30 }; /* tokens of a sentence that is easily read */

static void keep_better(struct best *b, struct best x)
{
    if (b->line < 0 || x.score > b->score) *b = x;
}

void study_best_roles(struct study *s, const struct head_sums *sums, int line, int tokens)
{
    if (tokens < SHORT || tokens > LONG) return;
    for (int i = 0; i < s->h.n; i++) {
        struct heed_head h = {0};
        head_means(&h, &sums[i]);
        for (int r = 0; r < HEED_ROLE_MIXED; r++)
            keep_better(&s->best[i][r],
                        (struct best){head_share(&h, (enum heed_role)r), i, line, -1, -1, 0});
    }
}

/* The weight of a pair, less the mean weight that the n queries give to the key. */
static double beyond_mean(const float *weight, size_t stride, int n, int query, int key)
{
    const float *first = weight - (size_t)query * stride;
    double mean = 0;
    for (int i = 0; i < n; i++) mean += (double)first[(size_t)i * stride + key] / n;
    return (double)weight[key] - mean;
}

void study_best_pairs(struct study *s, int head, int line, const int32_t *id, int n, int query,
                      const float *weight, size_t stride)
{
    enum { FAR = 5, BEFORE = 2 };
    const float least = 0.3f;
    struct token_kind q = s->kind[id[query]];
    for (int k = 0; k < n && n <= LONG; k++) {
        struct token_kind key = s->kind[id[k]];
        int d = abs(k - query);
        if (!key.word || d < BEFORE || !(q.word || q.pronoun)) continue;
        struct best x = {beyond_mean(weight, stride, n, query, k), head, line, query, k, d};
        bool noun = k > 0 && (s->kind[id[k - 1]].determiner || (key.capital && k > s->tag + 1));
        if (q.pronoun && noun && query - k >= BEFORE) keep_better(&s->pair_best[ANAPHORA], x);
        x.score *= d;
        if (q.word && d >= FAR && weight[k] >= least && id[k] != id[query])
            keep_better(&s->pair_best[LONG_DISTANCE], x);
    }
}

/* ---- all ---- */

static void example_add(struct study *s, const struct best *b, double score, const char *format,
                        const char *a, const char *c)
{
    if (b->line < 0) return;
    char *name = s->name[s->h.examples];
    snprintf(name, sizeof s->name[0], format, a, c);
    for (char *p = name; *p; p++)
        if (*p == ' ') *p = '-';
    s->example[s->h.examples++] =
        (struct heed_head_example){name, b->head, b->line, score, b->query, b->key, b->distance};
}

/* The head of a use that has a role to the largest part; -1: none has the role. */
static int clearest(const struct study *s, int use, enum heed_role role)
{
    int found = -1;
    for (int i = 0; i < s->h.n; i++) {
        const struct heed_head *h = &s->head[i];
        if ((int)h->use != use || h->role != role) continue;
        if (found < 0 || head_share(h, role) > head_share(&s->head[found], role)) found = i;
    }
    return found;
}

enum heed_status study_examples(struct study *s, struct heed_error *err)
{
    static const char *const use_name[] = {"encoder", "decoder", "cross"};
    static const char *const pair_name[] = {"long-distance", "anaphora"};
    enum { MOST = HEED_USES * HEED_ROLES + PAIRS };
    s->example = calloc(MOST, sizeof *s->example);
    s->name = calloc(MOST, sizeof *s->name);
    if (!s->example || !s->name) return error_memory(err, MOST * sizeof *s->name, "examples");
    s->h.example = s->example;
    for (int use = 0; use < HEED_USES; use++)
        for (int r = 0; r < HEED_ROLE_MIXED; r++) {
            int i = clearest(s, use, (enum heed_role)r);
            if (i < 0) continue;
            const struct best *b = &s->best[i][r];
            example_add(s, b, b->score, "%s-%s", use_name[use],
                        heed_role_name((enum heed_attention_use)use, (enum heed_role)r));
        }
    for (int i = 0; i < PAIRS; i++) {
        const struct best *b = &s->pair_best[i];
        double score = i == LONG_DISTANCE && b->distance ? b->score / b->distance : b->score;
        example_add(s, b, score, "%s%s", pair_name[i], "");
    }
    return HEED_OK;
}
