/*
 * tokenize.c - the tokenizers of sacreBLEU, so that scores can be compared with published ones.
 *
 * Each of them is a short list of rules, and each rule sweeps the whole line once from left to
 * right, putting spaces around one character or a pair of neighbours. A character that a rule has
 * used is not looked at again by the same rule: in "a.." the pair (a, .) hides the pair (., .).
 * Scores depend on such details, so the rules run one after another and not in one combined
 * sweep.
 *
 * Call order: metric_tokenizer_find, metric_tokenize (decode, trim, unescape, rules), release.
 */
#include "score/tokenize.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

/* ---- kinds of characters ---- */

/* Unicode's White_Space, and the four ASCII separators that Python adds. */
bool metric_is_space(int32_t c)
{
    return c == ' ' || (c >= 0x1c && c <= 0x1f) || u_isUWhiteSpace(c);
}

static bool is_any(UChar32 c)
{
    (void)c;
    return true;
}

static bool is_digit(UChar32 c)
{
    return c >= '0' && c <= '9';
}

static bool is_not_digit(UChar32 c)
{
    return !is_digit(c);
}

static bool is_dash(UChar32 c)
{
    return c == '-';
}

static bool is_point(UChar32 c)
{
    return c == '.' || c == ',';
}

/* ASCII punctuation except ' , - and the full stop. */
static bool is_mark(UChar32 c)
{
    return (c > ' ' && c <= '&') || (c >= '(' && c <= '+') || c == '/' || (c >= ':' && c <= '@') ||
           (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

static bool is_number(UChar32 c)
{
    return U_GET_GC_MASK(c) & U_GC_N_MASK;
}

static bool is_not_number(UChar32 c)
{
    return !is_number(c);
}

static bool is_punctuation(UChar32 c)
{
    return U_GET_GC_MASK(c) & U_GC_P_MASK;
}

static bool is_symbol(UChar32 c)
{
    return U_GET_GC_MASK(c) & U_GC_S_MASK;
}

/* Whether sacreBLEU takes c for a Chinese character. Its table is meant to list the ideographs from
 * U+20000 on, but is written with escapes that end after four digits, so that it lists U+2001 to
 * U+2A6D instead: general punctuation, arrows and symbols. Published scores were computed with that
 * table. */
static bool is_chinese(UChar32 c)
{
    static const struct {
        UChar32 first, last;
    } range[] = {
        {0x2001, 0x2a6d}, {0x2e80, 0x2eff}, {0x2f00, 0x2fdf}, {0x2ff0, 0x303f}, {0x3100, 0x312f},
        {0x31a0, 0x31bf}, {0x31c0, 0x31ef}, {0x3200, 0x4db5}, {0x4e00, 0x9fbb}, {0xf900, 0xfa2d},
        {0xfa30, 0xfa6a}, {0xfa70, 0xfad9}, {0xfe10, 0xfe1f}, {0xfe30, 0xfe4f}, {0xff00, 0xffef},
    };
    if (c < range[0].first) return false;
    for (size_t i = 0; i < sizeof range / sizeof *range; i++) {
        if (c <= range[i].last) return c >= range[i].first;
    }
    return false;
}

/* ---- tokenizers as tables ---- */

struct rule {
    bool (*first)(UChar32);
    bool (*second)(UChar32);     /* NULL: the rule is about one character */
    bool before, between, after; /* where the rule puts spaces */
};

static const struct rule rules_13a[] = {
    {is_mark, NULL, true, false, true},
    {is_not_digit, is_point, false, true, true},
    {is_point, is_not_digit, true, true, false},
    {is_digit, is_dash, false, true, true},
    {0},
};
static const struct rule rules_zh[] = {
    {is_chinese, NULL, true, false, true},       {is_mark, NULL, true, false, true},
    {is_not_digit, is_point, false, true, true}, {is_point, is_not_digit, true, true, false},
    {is_digit, is_dash, false, true, true},      {0},
};
static const struct rule rules_intl[] = {
    {is_not_number, is_punctuation, false, true, true},
    {is_punctuation, is_not_number, true, true, false},
    {is_symbol, NULL, true, false, true},
    {0},
};
static const struct rule rules_char[] = {
    {is_any, NULL, true, false, true},
    {0},
};
static const struct rule rules_none[] = {{0}};

struct metric_tokenizer {
    const char *name;
    bool trim_start; /* the end of a line is always trimmed */
    bool unescape;   /* undo the markup of the NIST files, and put a space at both ends */
    const struct rule *rule;
};

static const struct metric_tokenizer tokenizers[] = {
    {"13a", false, true, rules_13a},    {"zh", true, false, rules_zh},
    {"intl", false, false, rules_intl}, {"char", false, false, rules_char},
    {"none", false, false, rules_none},
};

const struct metric_tokenizer *metric_tokenizer_find(const char *name, struct heed_error *err)
{
    for (size_t i = 0; i < sizeof tokenizers / sizeof *tokenizers; i++) {
        if (name && strcmp(name, tokenizers[i].name) == 0) return &tokenizers[i];
    }
    error_set(err, HEED_EARG,
              "no tokenizer for BLEU is called '%s': expected 13a, zh, intl, char or none",
              name ? name : "(null)");
    return NULL;
}

/* ---- lines ---- */

static enum heed_status text_reserve(struct metric_text *t, size_t cap, struct heed_error *err)
{
    if (cap <= t->cap) return HEED_OK;
    size_t bytes = cap * sizeof *t->c;
    int32_t *c = realloc(t->c, bytes);
    if (c) t->c = c;
    int32_t *spare = c ? realloc(t->spare, bytes) : NULL;
    if (!spare) return error_memory(err, bytes, "a line to score");
    t->spare = spare;
    t->cap = cap;
    return HEED_OK;
}

/* What was written to spare, up to `end`, becomes the text. */
static void text_take_spare(struct metric_text *t, const int32_t *end)
{
    int32_t *old = t->c;
    t->n = (size_t)(end - t->spare);
    t->c = t->spare;
    t->spare = old;
}

void metric_text_release(struct metric_text *t)
{
    free(t->c);
    free(t->spare);
    *t = (struct metric_text){0};
}

/* Unicode's Final_Sigma: the capital sigma at `at` ends a word. Characters such as apostrophes and
 * accents, which may stand within a word, are passed over on both sides. */
static bool is_final_sigma(const struct metric_text *t, size_t at)
{
    size_t before = at, after = at + 1;
    while (before > 0 && u_hasBinaryProperty(t->c[before - 1], UCHAR_CASE_IGNORABLE)) before--;
    while (after < t->n && u_hasBinaryProperty(t->c[after], UCHAR_CASE_IGNORABLE)) after++;
    return before > 0 && u_hasBinaryProperty(t->c[before - 1], UCHAR_CASED) &&
           (after == t->n || !u_hasBinaryProperty(t->c[after], UCHAR_CASED));
}

/* Unicode's lower case in no language in particular, which is that of Python's str.lower. */
static void text_lower(struct metric_text *t)
{
    enum {
        CAPITAL_I_DOT = 0x130,
        DOT = 0x307,
        CAPITAL_SIGMA = 0x3a3,
        SIGMA = 0x3c3,
        FINAL = 0x3c2
    };
    int32_t *out = t->spare;
    for (size_t i = 0; i < t->n; i++) {
        if (t->c[i] == CAPITAL_I_DOT) { /* the one character that becomes two */
            *out++ = 'i';
            *out++ = DOT;
        } else if (t->c[i] == CAPITAL_SIGMA) {
            *out++ = is_final_sigma(t, i) ? FINAL : SIGMA;
        } else {
            *out++ = u_tolower(t->c[i]);
        }
    }
    text_take_spare(t, out);
}

enum heed_status metric_decode(struct metric_text *t, const char *line, bool lower,
                               struct heed_error *err)
{
    const uint8_t *s = (const uint8_t *)line;
    size_t len = strlen(line);
    /* Two more for the spaces at both ends (text_pad). A character has at least as many
     * bytes as its lower case has code points. */
    enum heed_status status = text_reserve(t, len + 2, err);
    if (status) return status;
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        UChar32 c;
        U8_NEXT_OR_FFFD(s, i, len, c);
        t->c[n++] = c;
    }
    t->n = n;
    if (lower) text_lower(t);
    return HEED_OK;
}

static void text_trim_end(struct metric_text *t)
{
    while (t->n && metric_is_space(t->c[t->n - 1])) t->n--;
}

static void text_trim_start(struct metric_text *t)
{
    size_t k = 0;
    while (k < t->n && metric_is_space(t->c[k])) k++;
    t->n -= k;
    memmove(t->c, t->c + k, t->n * sizeof *t->c);
}

static bool text_has(const struct metric_text *t, size_t at, const char *word, size_t len)
{
    if (t->n - at < len) return false;
    for (size_t k = 0; k < len; k++) {
        if (t->c[at + k] != word[k]) return false;
    }
    return true;
}

/* Replaces `from`, which is ASCII, with `to`, which is not longer, so that the line is rewritten in
 * place. */
static void text_replace(struct metric_text *t, const char *from, const char *to)
{
    size_t len = strlen(from), n = 0;
    for (size_t i = 0; i < t->n;) {
        if (t->c[i] == from[0] && text_has(t, i, from, len)) {
            for (const char *p = to; *p; p++) t->c[n++] = *p;
            i += len;
        } else {
            t->c[n++] = t->c[i++];
        }
    }
    t->n = n;
}

/* Makes one replacement after another over the whole line, as sacreBLEU does: "&amp;lt;" becomes
 * "<", but "&amp;quot;" becomes "&quot;". */
static void text_unescape(struct metric_text *t)
{
    static const char *const table[][2] = {
        {"<skipped>", ""}, {"-\n", ""},   {"\n", " "},   {"&quot;", "\""},
        {"&amp;", "&"},    {"&lt;", "<"}, {"&gt;", ">"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        text_replace(t, table[i][0], table[i][1]);
    }
}

/* Puts a space at both ends, so that rules for two neighbours also apply at the ends of the line.
 */
static void text_pad(struct metric_text *t)
{
    memmove(t->c + 1, t->c, t->n * sizeof *t->c);
    t->c[0] = t->c[t->n + 1] = ' ';
    t->n += 2;
}

static enum heed_status rule_apply(const struct rule *r, struct metric_text *t,
                                   struct heed_error *err)
{
    /* A rule for one character turns it into three at most, a rule for two into four. */
    enum heed_status status = text_reserve(t, t->n * (r->second ? 2 : 3), err);
    if (status) return status;
    const int32_t *in = t->c;
    int32_t *out = t->spare;
    for (size_t i = 0; i < t->n;) {
        bool hit = r->first(in[i]) && (!r->second || (i + 1 < t->n && r->second(in[i + 1])));
        if (hit && r->before) *out++ = ' ';
        *out++ = in[i++];
        if (hit && r->between) *out++ = ' ';
        if (hit && r->second) *out++ = in[i++];
        if (hit && r->after) *out++ = ' ';
    }
    text_take_spare(t, out);
    return HEED_OK;
}

enum heed_status metric_tokenize(struct metric_text *t, const struct metric_tokenizer *k,
                                 const char *line, bool lower, struct heed_error *err)
{
    enum heed_status status = metric_decode(t, line, lower, err);
    if (status) return status;
    text_trim_end(t);
    if (k->trim_start) text_trim_start(t);
    if (k->unescape) {
        text_unescape(t);
        text_pad(t);
    }
    for (const struct rule *r = k->rule; r->first; r++) {
        status = rule_apply(r, t, err);
        if (status) return status;
    }
    return HEED_OK;
}

/* Python's string.punctuation. */
static bool is_ascii_punctuation(int32_t c)
{
    return is_mark(c) || c == '\'' || c == '-' || is_point(c);
}

/* Where metric_decode_words cuts the word c[0..n): the number of characters before the cut. */
static size_t word_cut(const int32_t *c, size_t n)
{
    if (is_ascii_punctuation(c[n - 1])) return n - 1;
    return is_ascii_punctuation(c[0]) ? 1 : n;
}

enum heed_status metric_decode_words(struct metric_text *t, const char *line, bool lower,
                                     struct heed_error *err)
{
    enum heed_status status = metric_decode(t, line, lower, err);
    /* A word becomes longer by one space. */
    if (!status) status = text_reserve(t, 2 * t->n, err);
    if (status) return status;
    int32_t *out = t->spare;
    for (size_t i = 0; i < t->n;) {
        size_t n = 0;
        while (i + n < t->n && !metric_is_space(t->c[i + n])) n++;
        size_t cut = n ? word_cut(t->c + i, n) : 0;
        for (size_t k = 0; k < n; k++) {
            if (k == cut) *out++ = ' ';
            *out++ = t->c[i + k];
        }
        i += n;
        if (i < t->n) *out++ = t->c[i++];
    }
    text_take_spare(t, out);
    return HEED_OK;
}
