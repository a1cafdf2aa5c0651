/*
 * language.c - which of some languages a text is written in.
 *
 * ICU knows the scripts of every language. Languages that share a script are told apart by common
 * words (language_words.c), which serve twice. A word of the text that is among them has a
 * probability by its rank (Zipf's law). The letters of any other word have probabilities by the two
 * letters before them, with counts from the common words and Dirichlet smoothing. Bayes' rule then
 * gives the probability of each language.
 */
#include <math.h>
#include <string.h>
#include <unicode/uchar.h>
#include <unicode/uloc.h>
#include <unicode/uscript.h>
#include <unicode/utf8.h>

#include "heed.h"
#include "tokens/language_words.h"

enum {
    TEXT_LETTERS = 500,    /* of a text are read, spaces included: enough to tell its language */
    TEXT_BYTES = 1 << 16,  /* of a text are looked at */
    SAMPLE_LETTERS = 1500, /* the most that a row of language_words.c may have */
    SCRIPTS = 8,           /* a language is written in fewer */
    BUCKETS = 64           /* a power of two; letters of a bucket have the same low bits */
};

/* Words in lower case, with a space before and behind each. */
struct letters {
    UChar32 v[SAMPLE_LETTERS];
    int n;
};

struct scripts {
    UScriptCode v[SCRIPTS];
    int n;
};

struct language {
    struct scripts scripts;
    struct letters sample; /* common words, the most frequent first; empty where none are known */
    /* places in the sample by letter: the last of a bucket, and the one before each; -1: none */
    int16_t last[BUCKETS], before[SAMPLE_LETTERS];
};

/* ---- letters ---- */

/* A letter, or a mark of a script in which vowels are marks. */
static bool is_letter(UChar32 c)
{
    return c >= 0 && (u_isalpha(c) || (U_GET_GC_MASK(c) & U_GC_M_MASK));
}

static bool is_latin(UChar32 c)
{
    return uscript_hasScript(c, USCRIPT_LATIN);
}

/* Reads at most `most` letters and spaces. A word ends where no letter follows, and where letters
 * of the Latin script stand next to others: Chinese has no spaces around names. */
static void letters_read(struct letters *to, const char *text, int most)
{
    int i = 0;
    to->n = 0;
    to->v[to->n++] = ' ';
    /* room for a letter and two spaces */
    for (UChar32 c; i < TEXT_BYTES && text[i] && to->n < most - 2;) {
        U8_NEXT((const uint8_t *)text, i, -1, c);
        UChar32 before = to->v[to->n - 1];
        bool letter = is_letter(c);
        if (before != ' ' && (!letter || is_latin(c) != is_latin(before))) to->v[to->n++] = ' ';
        if (letter) to->v[to->n++] = u_tolower(c);
    }
    if (to->v[to->n - 1] != ' ') to->v[to->n++] = ' ';
}

/* Letters that a script has in common use, about. */
static double alphabet(UChar32 c)
{
    UErrorCode status = U_ZERO_ERROR;
    UScriptCode script = uscript_getScript(c, &status);
    return script == USCRIPT_HAN ? 3000 : script == USCRIPT_HANGUL ? 1000 : 40;
}

/* ---- languages ---- */

/* The row of a language, such as "de" or "zh-TW"; NULL: there is none. The script is the likeliest
 * for the code: that of zh-TW is Hant. */
static const struct language_words *row_of(const char *code)
{
    UErrorCode status = U_ZERO_ERROR;
    char language[ULOC_LANG_CAPACITY], full[ULOC_FULLNAME_CAPACITY], script[ULOC_SCRIPT_CAPACITY];
    uloc_addLikelySubtags(code, full, sizeof full, &status);
    uloc_getLanguage(full, language, sizeof language, &status);
    uloc_getScript(full, script, sizeof script, &status);
    if (U_FAILURE(status)) return NULL;
    if (!strcmp(language, "nb") || !strcmp(language, "nn")) strcpy(language, "no");
    const struct language_words *row;
    for (int i = 0; (row = language_words_at(i)); i++)
        if (!strcmp(row->language, language) && (!row->script || !strcmp(row->script, script)))
            return row;
    return NULL;
}

static void scripts_of(struct scripts *s, const char *code)
{
    UErrorCode status = U_ZERO_ERROR;
    s->n = uscript_getCode(code, s->v, SCRIPTS, &status);
    if (U_FAILURE(status)) s->n = 0;
}

static void language_open(struct language *l, const char *code)
{
    const struct language_words *row = row_of(code);
    scripts_of(&l->scripts, code);
    letters_read(&l->sample, row ? row->words : "", SAMPLE_LETTERS);
    for (int i = 0; i < BUCKETS; i++) l->last[i] = -1;
    for (int16_t k = 0; k < l->sample.n; k++) {
        int16_t *last = &l->last[l->sample.v[k] % BUCKETS];
        l->before[k] = *last;
        *last = k;
    }
}

/* Whether a letter is of one of the scripts, or is common to many. */
static bool is_written(const struct scripts *s, UChar32 c)
{
    UErrorCode status = U_ZERO_ERROR;
    UScriptCode script = uscript_getScript(c, &status);
    if (script == USCRIPT_COMMON || script == USCRIPT_INHERITED) return true;
    for (int i = 0; i < s->n; i++)
        if (uscript_hasScript(c, s->v[i])) return true;
    return false;
}

/* ---- probabilities ---- */

/* log p of the letter at i, given the two before it. *seen has how often it is in the sample, alone
 * and behind one and two of the letters before it; on entry, the same of the letter before it. */
static double log_letter(const struct language *l, const struct letters *text, int i, int seen[3])
{
    const double weight = 20; /* of the shorter context, in letters seen */
    const struct letters *s = &l->sample;
    const UChar32 *at = &text->v[i];
    int one = seen[0],
        two = seen[1]; /* how often the one and the two letters before it are there */
    seen[0] = seen[1] = seen[2] = 0;
    for (int k = l->last[at[0] % BUCKETS]; k >= 0; k = l->before[k]) {
        if (s->v[k] != at[0]) continue;
        seen[0]++;
        if (k < 1 || i < 1 || s->v[k - 1] != at[-1]) continue;
        seen[1]++;
        seen[2] += k >= 2 && i >= 2 && s->v[k - 2] == at[-2];
    }
    double p = 1 / (alphabet(at[0]) * fmax(l->scripts.n, 1));
    p = (seen[0] + weight * p) / (s->n + weight);
    p = (seen[1] + weight * p) / (one + weight);
    p = (seen[2] + weight * p) / (two + weight);
    return log(p);
}

/* The rank of the word of n letters, counted from 1; 0: it is not in the sample. */
static int rank_of(const struct letters *s, const UChar32 *word, int n)
{
    int rank = 0;
    for (int k = 0; k + n + 1 < s->n; k++) {
        if (s->v[k] != ' ') continue;
        rank++;
        if (!memcmp(s->v + k + 1, word, n * sizeof *word) && s->v[k + 1 + n] == ' ') return rank;
    }
    return 0;
}

/* log p of a letter of another script. Latin letters, of names and brands, are in texts of all
 * languages. */
static double log_foreign(UChar32 c)
{
    const double latin = 1, other = 10; /* nats more than for a letter of the own script */
    return -log(alphabet(c)) - (is_latin(c) ? latin : other);
}

/* log p of a word, the n letters from text->v[at] on, and of the space behind it. */
static double log_word(const struct language *l, const struct letters *text, int at, int n)
{
    const double common = 0.5;   /* part of a text that common words are */
    const double harmonic = 5.2; /* the sum of 1 / rank over about 100 ranks */
    int seen[3] = {0}, rank = rank_of(&l->sample, text->v + at, n);
    if (rank) return log(common / harmonic / rank);
    double sum = log(1 - common);
    log_letter(l, text, at - 1, seen);
    for (int i = at; i <= at + n; i++) {
        double x = log_letter(l, text, i, seen);
        sum += is_written(&l->scripts, text->v[i]) ? x : log_foreign(text->v[i]);
    }
    return sum;
}

static double log_text(const struct language *l, const struct letters *text)
{
    double sum = 0;
    for (int at = 1, n; at < text->n; at += n + 1) {
        for (n = 0; text->v[at + n] != ' '; n++) continue;
        sum += log_word(l, text, at, n);
    }
    return sum;
}

/* ---- detection ---- */

/* How sure an answer can be by the letters of a text alone: they must be many, and of the
 * language's scripts. A Chinese character counts as a short word. */
static double evidence(const struct letters *text, const char *code)
{
    const double half = 2; /* letters */
    double all = 0, own = 0;
    struct scripts scripts;
    scripts_of(&scripts, code);
    for (int i = 0; i < text->n; i++) {
        if (text->v[i] == ' ') continue;
        int weight = alphabet(text->v[i]) > 100 ? 3 : 1;
        all += weight;
        own += is_written(&scripts, text->v[i]) ? weight : 0;
    }
    return own / (all + half);
}

/* Puts x behind the n that are at least as likely. */
static void put(struct heed_detection *out, int n, struct heed_detection x)
{
    for (; n > 0 && out[n - 1].confidence < x.confidence; n--) out[n] = out[n - 1];
    out[n] = x;
}

int heed_detect_language(const char *text, const char *const *known, int n,
                         struct heed_detection *out)
{
    if (!text || !known || !out || n < 1) return 0;
    for (int i = 0; i < n; i++)
        if (!known[i]) return 0;
    struct letters read;
    struct language language;
    double best = -INFINITY, sum = 0;
    letters_read(&read, text, TEXT_LETTERS);
    for (int i = 0; i < n; i++) {
        language_open(&language, known[i]);
        double logp = log_text(&language, &read);
        out[i].confidence = (float)logp;
        best = fmax(best, logp);
    }
    for (int i = 0; i < n; i++) sum += exp((double)out[i].confidence - best);
    for (int i = 0; i < n; i++) {
        double p = exp((double)out[i].confidence - best) / sum;
        put(out, i, (struct heed_detection){known[i], (float)(p * evidence(&read, known[i]))});
    }
    return n;
}
