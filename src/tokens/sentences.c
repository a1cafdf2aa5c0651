/*
 * sentences.c - where the sentences and the words of a text begin and end; see sentences.h.
 */
#include "tokens/sentences.h"

#include <unicode/ubrk.h>
#include <unicode/uchar.h>
#include <unicode/utext.h>
#include <unicode/utf8.h>

#include "base/array.h"
#include "base/error.h"

/* This locale of ICU knows English abbreviations, such as "Mr.", that do not end a sentence. */
static const char locale[] = "en@ss=standard";

/* Whether text[start, end) begins with a lower-case letter and so continues the sentence before it.
 * Unicode's rules end a sentence after every ! and ?, but "Stop!" he said is one sentence. */
static bool goes_on(const char *text, size_t start, size_t end)
{
    int32_t at = 0;
    UChar32 c;
    U8_NEXT(text + start, at, (int32_t)(end - start), c);
    return c >= 0 && u_islower(c);
}

/* Moves *start and *end past the white space at both ends of text[*start, *end). */
static void trim(const char *text, size_t *start, size_t *end)
{
    int32_t from = 0, to = (int32_t)(*end - *start), at;
    const char *s = text + *start;
    UChar32 c;
    for (at = 0; at < to; from = at) {
        U8_NEXT(s, at, to, c);
        if (c < 0 || !u_isUWhiteSpace(c)) break;
    }
    for (at = to; at > from; to = at) {
        U8_PREV(s, from, at, c);
        if (c < 0 || !u_isUWhiteSpace(c)) break;
    }
    *end = *start + to;
    *start += from;
}

struct heed_span text_trimmed(const char *text, size_t len)
{
    size_t start = 0, end = len;
    if (len <= INT32_MAX) trim(text, &start, &end);
    return (struct heed_span){start, end - start};
}

static enum heed_status add(struct spans *out, size_t start, size_t end, struct heed_error *err)
{
    enum heed_status status = array_reserve(&out->v, &out->cap, out->n + 1, sizeof *out->v,
                                            "the sentences of a text", err);
    if (status) return status;
    out->v[out->n++] = (struct heed_span){start, end - start};
    return HEED_OK;
}

static enum heed_status split(struct spans *out, const char *text, size_t len,
                              UBreakIteratorType type, struct heed_error *err)
{
    if (len > INT32_MAX)
        return error_set(err, HEED_EARG, "a text has %zu bytes, expected at most %d", len,
                         INT32_MAX);
    UErrorCode code = U_ZERO_ERROR;
    UText *t = utext_openUTF8(NULL, text, (int64_t)len, &code);
    UBreakIterator *b = ubrk_open(type, locale, NULL, 0, &code);
    if (U_SUCCESS(code)) ubrk_setUText(b, t, &code);
    enum heed_status status = HEED_OK;
    size_t before = out->n;
    if (code == U_MEMORY_ALLOCATION_ERROR)
        status = error_memory(err, len, "the sentences of a text");
    else if (U_FAILURE(code))
        status = error_set(err, HEED_EUNSUPPORTED, "ICU cannot find %s: %s",
                           type == UBRK_WORD ? "words" : "sentences", u_errorName(code));
    for (int32_t from = 0, to; !status && (to = ubrk_next(b)) != UBRK_DONE; from = to) {
        size_t start = (size_t)from, end = (size_t)to;
        trim(text, &start, &end);
        if (start == end) continue;
        if (type == UBRK_SENTENCE && out->n > before && goes_on(text, start, end))
            out->v[out->n - 1].len = end - out->v[out->n - 1].at;
        else
            status = add(out, start, end, err);
    }
    if (b) ubrk_close(b);
    utext_close(t);
    return status;
}

enum heed_status sentences_split(struct spans *out, const char *text, size_t len,
                                 struct heed_error *err)
{
    return split(out, text, len, UBRK_SENTENCE, err);
}

enum heed_status words_split(struct spans *out, const char *text, size_t len,
                             struct heed_error *err)
{
    return split(out, text, len, UBRK_WORD, err);
}

int spans_ended(const struct heed_span *v, int n, size_t at)
{
    int low = 0, high = n;
    while (low < high) {
        int i = low + (high - low) / 2;
        if (v[i].at + v[i].len <= at)
            low = i + 1;
        else
            high = i;
    }
    return low;
}
