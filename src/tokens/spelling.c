/*
 * spelling.c - what a vocabulary cannot spell; see spelling.h.
 *
 * Every byte of the text gets a mark: the model reads it, or does not read it, or reads a plain
 * space in its place (white space that the vocabulary cannot spell). A maximal run of bytes that
 * are not read is called a stretch. The text without its stretches is what the model reads.
 */
#include "tokens/spelling.h"

#include <stdlib.h>
#include <string.h>

#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/ustring.h>
#include <unicode/utrans.h>

#include "base/error.h"
#include "tokens/characters.h"
#include "tokens/sentences.h"
#include "tokens/tokenizer.h"

enum mark { READ, NOT_READ, SPACE };

/* A word, and the form of it that the model reads instead. */
struct other_form {
    struct heed_span word;
    char *text;
};

struct work {
    const struct heed_tokenizer *t;
    const char *text;
    size_t len;
    char *mark;              /* [len] an enum mark for each byte */
    struct spans words;      /* the words of text */
    struct other_form *form; /* [words.n] the words with another form, in the order of the text */
    size_t forms;
    UTransliterator *simplifier; /* of traditional Chinese characters; NULL: not opened yet */
};

void spelling_release(struct spelling *s)
{
    free(s->text);
    free(s->read);
    free(s->origin);
    free(s->v);
    *s = (struct spelling){0};
}

static void work_release(struct work *w)
{
    for (size_t i = 0; i < w->forms; i++) free(w->form[i].text);
    free(w->form);
    utrans_close(w->simplifier);
    free(w->words.v);
    free(w->mark);
}

/* ---- what is not spelled ---- */

static enum heed_status is_spelled(const struct heed_tokenizer *t, const char *text, bool *spelled,
                                   struct heed_error *err)
{
    struct heed_ids ids = {0};
    enum heed_status status = heed_encode(t, text, strlen(text), &ids, err);
    if (!status) *spelled = tokenizer_spells(t, ids.v, ids.n);
    free(ids.v);
    return status;
}

/* Marks as not read the bytes of tokens that the model has not learned (tokenizer_spells). */
static enum heed_status mark_characters(struct work *w, bool tagged, struct heed_error *err)
{
    struct heed_ids ids = {0};
    size_t *end = NULL;
    enum heed_status status = tokenizer_encode_source(w->t, w->text, w->len, tagged, &ids, err);
    if (!status && !(end = malloc((ids.n + 1) * sizeof *end)))
        status = error_memory(err, ids.n * sizeof *end, "the tokens of a text");
    if (!status) status = tokenizer_source_ends(w->t, w->text, w->len, tagged, end, ids.n, err);
    for (size_t i = 0, at = 0; i < ids.n && !status; at = end[i++])
        if (!tokenizer_spells(w->t, &ids.v[i], 1) && end[i] > at)
            memset(w->mark + at, NOT_READ, end[i] - at);
    free(end);
    free(ids.v);
    return status;
}

/* Whether x has a visible character that is marked as not read. */
static bool has_visible(const struct work *w, struct heed_span x)
{
    for (size_t at = x.at; at < x.at + x.len; at += char_bytes(char_behind(w->text, at)))
        if (w->mark[at] == NOT_READ && char_is_visible(char_behind(w->text, at))) return true;
    return false;
}

/* ---- other forms of the same characters ---- */

/* Whether all characters of x are Chinese ones. */
static bool is_ideographic(const struct work *w, struct heed_span x)
{
    for (size_t at = x.at; at < x.at + x.len; at += char_bytes(char_behind(w->text, at)))
        if (!char_is_ideographic(char_behind(w->text, at))) return false;
    return true;
}

/* Whether normalization form NFKC keeps the meaning of every character of the word that cannot be
 * spelled: it has another width, is a ligature, or joins with the letter or mark beside it. */
static bool may_normalize(const struct work *w, struct heed_span word)
{
    for (size_t at = word.at; at < word.at + word.len; at += char_bytes(char_behind(w->text, at))) {
        int32_t c = char_behind(w->text, at);
        int32_t form = u_getIntPropertyValue(c, UCHAR_DECOMPOSITION_TYPE);
        bool has_form = form == U_DT_WIDE || form == U_DT_NARROW || form == U_DT_COMPAT ||
                        form == U_DT_CANONICAL || u_getCombiningClass(c);
        if (w->mark[at] && !has_form) return false;
    }
    return true;
}

/* Opens the simplifier when the first word needs it: ICU takes some ten milliseconds to read its
 * table, once in a process. */
static void simplifier_open(struct work *w, UErrorCode *code)
{
    static const UChar name[] = u"Traditional-Simplified";
    if (!w->simplifier) w->simplifier = utrans_openU(name, -1, UTRANS_FORWARD, NULL, 0, NULL, code);
}

/* Sets *out to the word in Unicode's form NFKC and, if `simplified`, with simplified Chinese
 * characters for traditional ones; malloced. *out stays NULL where ICU has no such form or the word
 * is too long. */
static enum heed_status form_make(struct work *w, struct heed_span word, bool simplified,
                                  char **out, struct heed_error *err)
{
    enum { LONGEST = 128, ROOM = 4 * LONGEST, BYTES = 3 * ROOM };
    UChar from[LONGEST], to[ROOM];
    char text[BYTES + 1];
    int32_t n = 0, bytes = 0;
    UErrorCode code = U_ZERO_ERROR;
    u_strFromUTF8(from, LONGEST, &n, w->text + word.at, (int32_t)word.len, &code);
    const UNormalizer2 *nfkc = unorm2_getNFKCInstance(&code);
    n = unorm2_normalize(nfkc, from, n, to, ROOM, &code);
    if (simplified) simplifier_open(w, &code);
    int32_t limit = n;
    if (simplified) utrans_transUChars(w->simplifier, to, &n, ROOM, 0, &limit, &code);
    u_strToUTF8(text, BYTES, &bytes, to, n, &code);
    if (U_FAILURE(code) && code != U_MEMORY_ALLOCATION_ERROR) return HEED_OK;
    if (U_SUCCESS(code)) *out = strndup(text, (size_t)bytes);
    return *out ? HEED_OK : error_memory(err, BYTES, "the spelling of a text");
}

/* Gives the word another form if the vocabulary can spell that; *done says whether it did. */
static enum heed_status read_form(struct work *w, struct heed_span word, bool *done,
                                  struct heed_error *err)
{
    /* which forms to try: NFKC alone, and NFKC with simplified characters */
    bool form[2] = {may_normalize(w, word), is_ideographic(w, word)};
    enum heed_status status = HEED_OK;
    *done = false;
    for (int i = 0; i < 2 && !status && !*done; i++) {
        char *text = NULL;
        if (form[i]) status = form_make(w, word, i == 1, &text, err);
        if (text) status = is_spelled(w->t, text, done, err);
        if (*done)
            w->form[w->forms++] = (struct other_form){word, text};
        else
            free(text);
    }
    if (*done) memset(w->mark + word.at, READ, word.len);
    return status;
}

/* ---- what belongs together ---- */

/* A word with a visible character that cannot be spelled is read in another form or not at all;
 * only the other characters of a Chinese word are still read. A character that is not visible does
 * not affect its word. Between words there is white space. */
static enum heed_status mark_words(struct work *w, struct heed_error *err)
{
    size_t before = 0;
    enum heed_status status = HEED_OK;
    for (size_t i = 0; i <= w->words.n && !status; i++) {
        struct heed_span word = i < w->words.n ? w->words.v[i] : (struct heed_span){w->len, 0};
        for (size_t k = before; k < word.at; k++)
            if (w->mark[k]) w->mark[k] = SPACE;
        before = word.at + word.len;
        if (!has_visible(w, word)) continue;
        bool has_form;
        status = read_form(w, word, &has_form, err);
        if (!status && !has_form && !is_ideographic(w, word))
            memset(w->mark + word.at, NOT_READ, word.len);
    }
    return status;
}

/* Where the tag (<b>, </b>, <!-- -->) or placeholder ({0}) that begins at `at` ends; 0: none begins
 * there. */
static size_t markup_end(const struct work *w, size_t at)
{
    char open = w->text[at], next = w->text[at + 1];
    bool tag = open == '<' && next && (strchr("/!?", next) || (char_is_spaced(next) && next > '9'));
    if (!tag && open != '{') return 0;
    size_t end = at + 1 + strcspn(w->text + at + 1, tag ? "<>" : "{} \t");
    return w->text[end] == (tag ? '>' : '}') ? end + 1 : 0;
}

/* Marks the markup that begins at `at` as not read. Returns where it ends; `at` if there is none.
 */
static size_t mark_markup(struct work *w, size_t at)
{
    size_t end = markup_end(w, at);
    if (!end) return at;
    memset(w->mark + at, NOT_READ, end - at);
    return end;
}

static bool encloses(int32_t open, int32_t close)
{
    bool quoted = open == close && (open == '"' || open == '\'');
    return quoted || (char_opens(open) && char_closes(close));
}

/* Widens the stretch text[*at, *end) to what belongs together. With letters at both of its sides
 * (C:\Users), it grows to the white space around it, without the marks of punctuation at the end.
 * Between brackets or quotes, it takes these in. */
static void widen(struct work *w, size_t *at, size_t *end)
{
    int32_t before = char_before(w->text, *at), behind = char_behind(w->text, *end);
    if (!has_visible(w, (struct heed_span){*at, *end - *at})) return;
    if (char_is_spaced(before) && char_is_spaced(behind)) {
        while (!char_is_space(before = char_before(w->text, *at))) *at -= char_bytes(before);
        while (!char_is_space(behind = char_behind(w->text, *end))) *end += char_bytes(behind);
        while (u_ispunct(behind = char_before(w->text, *end)) && !w->mark[*end - 1])
            *end -= char_bytes(behind);
    } else if (encloses(before, behind)) {
        *at -= char_bytes(before);
        *end += char_bytes(behind);
    }
    memset(w->mark + *at, NOT_READ, *end - *at);
}

/* Where the stretch that begins at `at` ends. */
static size_t stretch_end(const struct work *w, size_t at)
{
    while (at < w->len && w->mark[at] == NOT_READ) at++;
    return at;
}

/* Widens all stretches. Markup is a stretch of its own and is not widened. */
static void mark_stretches(struct work *w)
{
    for (size_t at = 0; at < w->len;) {
        size_t end = w->mark[at] == NOT_READ ? mark_markup(w, at) : at;
        if (end == at && w->mark[at] == NOT_READ) {
            end = stretch_end(w, at);
            for (size_t k = at + 1; k < end; k++)
                if (markup_end(w, k)) end = k;
            widen(w, &at, &end);
        }
        at = end > at ? end : at + 1;
    }
}

/* ---- what is left ---- */

/* Whether a stretch is part of Chinese text that is read. */
static bool is_among_read(const struct work *w, struct heed_span x)
{
    return is_ideographic(w, x) && (char_is_ideographic(char_before(w->text, x.at)) ||
                                    char_is_ideographic(char_behind(w->text, x.at + x.len)));
}

/* Where the white space that begins at `at` ends. */
static size_t spaces_end(const struct work *w, size_t at)
{
    while (at < w->len && char_is_space(char_behind(w->text, at)))
        at += char_bytes(char_behind(w->text, at));
    return at;
}

/* Finds the next stretch from `at` on; stretches with nothing but white space between them are one.
 * Returns false where there is none. */
static bool stretch_next(const struct work *w, size_t at, struct heed_span *out)
{
    const char *first = at < w->len ? memchr(w->mark + at, NOT_READ, w->len - at) : NULL;
    if (!first) return false;
    size_t start = (size_t)(first - w->mark), end = stretch_end(w, start), next;
    while ((next = spaces_end(w, end)) < w->len && w->mark[next] == NOT_READ)
        end = stretch_end(w, next);
    *out = (struct heed_span){start, end - start};
    return true;
}

static void put(struct spelling *s, size_t *n, char c, size_t origin)
{
    s->origin[*n] = origin;
    s->read[(*n)++] = c;
}

/* Appends text[at, end) to s->read. *form is the next word that has another form. */
static void read_on(struct spelling *s, const struct work *w, size_t *n, size_t at, size_t end,
                    size_t *form)
{
    while (at < end) {
        const struct other_form *x = *form < w->forms ? &w->form[*form] : NULL;
        if (x && x->word.at == at) {
            size_t behind = at + x->word.len;
            for (const char *c = x->text; *c; c++) put(s, n, *c, c == x->text ? at : behind - 1);
            at = behind;
            ++*form;
        } else if (w->mark[at] == SPACE) {
            put(s, n, ' ', at);
            at += char_bytes(char_behind(w->text, at));
        } else {
            put(s, n, w->text[at], at);
            at++;
        }
    }
}

/* Whether no space belongs between two characters: before a mark of punctuation, and between
 * Chinese characters. */
static bool join(int32_t before, int32_t behind)
{
    return char_follows(behind) || (char_is_ideographic(before) && char_is_ideographic(behind));
}

/* Where the white space that ends at `at` begins. */
static size_t spaces_start(const struct work *w, size_t at)
{
    while (at && char_is_space(char_before(w->text, at)))
        at -= char_bytes(char_before(w->text, at));
    return at;
}

/* Writes to s->read all of the text but its stretches, which go to s->v. A stretch between white
 * space leaves one space or none, and one between letters leaves a space, so that words do not run
 * together. */
static void read_rest(struct spelling *s, const struct work *w)
{
    size_t n = 0, at = 0, form = 0;
    struct heed_span x;
    while (stretch_next(w, at, &x)) {
        size_t start = spaces_start(w, x.at), end = spaces_end(w, x.at + x.len);
        int32_t before = char_before(w->text, start), behind = char_behind(w->text, end);
        bool spaces = start < x.at || x.at + x.len < end;
        if (start < at) start = at; /* behind the white space that went with the last stretch */
        read_on(s, w, &n, at, start, &form);
        while (form < w->forms && w->form[form].word.at < end) form++;
        bool visible = has_visible(w, x),
             letters = char_is_spaced(before) && char_is_spaced(behind);
        s->v[s->n++] =
            (struct unspelled){.where = x, .at = n, .copied = visible && !is_among_read(w, x)};
        if (n && behind && (spaces ? !join(before, behind) : visible && letters))
            put(s, &n, ' ', x.at);
        at = end;
    }
    read_on(s, w, &n, at, w->len, &form);
    s->origin[n] = w->len;
    s->read[n] = '\0';
}

/* Allocates s->read, s->origin and s->v. A space that takes the place of a stretch is not longer
 * than the stretch. */
static enum heed_status spelling_open(struct spelling *s, const struct work *w,
                                      struct heed_error *err)
{
    size_t bytes = w->len + 1, n = 0;
    struct heed_span x = {0};
    for (size_t i = 0; i < w->forms; i++) bytes += strlen(w->form[i].text);
    while (stretch_next(w, x.at + x.len, &x)) n++;
    s->read = malloc(bytes);
    s->origin = malloc(bytes * sizeof *s->origin);
    s->v = malloc((n + 1) * sizeof *s->v);
    return s->read && s->origin && s->v
               ? HEED_OK
               : error_memory(err, bytes * sizeof *s->origin, "the spelling of a text");
}

enum heed_status spelling_make(struct spelling *s, const struct heed_tokenizer *t, const char *text,
                               bool tagged, struct heed_error *err)
{
    enum heed_status status = tokenizer_well_formed(text, strlen(text), &s->text, err);
    if (status) return status;
    s->mended = strcmp(s->text, text) != 0;
    struct work w = {.t = t, .text = s->text, .len = strlen(s->text)};
    if (!(w.mark = calloc(w.len + 1, 1)))
        status = error_memory(err, w.len + 1, "the spelling of a text");
    if (!status) status = mark_characters(&w, tagged, err);
    if (!status) status = words_split(&w.words, w.text, w.len, err);
    if (!status && !(w.form = calloc(w.words.n + 1, sizeof *w.form)))
        status = error_memory(err, w.words.n * sizeof *w.form, "the spelling of a text");
    if (!status) status = mark_words(&w, err);
    if (!status) {
        mark_stretches(&w);
        status = spelling_open(s, &w, err);
    }
    if (!status) read_rest(s, &w);
    work_release(&w);
    return status;
}
