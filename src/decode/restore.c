/*
 * restore.c - what the vocabulary could not spell of a text goes back into its translation; see
 * restore.h.
 */
#include "decode/restore.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/characters.h"

/* ---- where ---- */

bool restore_needs_alignment(const struct spelling *s)
{
    struct heed_span all = text_trimmed(s->read, strlen(s->read));
    for (int i = 0; i < s->n; i++)
        if (s->v[i].copied && s->v[i].at > all.at && s->v[i].at < all.at + all.len) return true;
    return false;
}

/* The last word that ends at or before `at`, or -1. */
static int word_before(const struct heed_span *word, int n, size_t at)
{
    int low = 0, high = n;
    while (low < high) {
        int i = low + (high - low) / 2;
        if (word[i].at + word[i].len <= at)
            low = i + 1;
        else
            high = i;
    }
    return low - 1;
}

/* <b> belongs to what is behind it, </b> to what is before it. */
static bool is_opening(const char *stretch, size_t len)
{
    return len > 2 && stretch[0] == '<' && stretch[1] != '/' && stretch[len - 1] == '>' &&
           stretch[len - 2] != '/';
}

static bool is_closing(const char *stretch, size_t len)
{
    return len > 2 && stretch[0] == '<' && stretch[1] == '/';
}

/* Whether a stretch belongs to the word behind it, and not to the one before. */
static bool leans_forward(const char *text, struct heed_span x)
{
    bool before = !char_is_space(char_before(text, x.at));
    bool behind = !char_is_space(char_behind(text, x.at + x.len));
    return before == behind ? is_opening(text + x.at, x.len) : behind;
}

/* Of the places in a translation that follow a word that comes from `before`, or precede one that
 * comes from `behind`: the best is between two such words. Otherwise as few as possible of the
 * words from [0, split) come behind it and of the others before it. -1: there is none. */
static int place_between(const struct heed_alignment *a, int before, int behind, int split,
                         bool forward)
{
    int at = -1, wrong = 0;
    long best = 0;
    for (int i = 0; i < a->targets; i++) wrong += a->link[i] >= 0 && a->link[i] < split;
    for (int j = 0; j <= a->targets; j++) {
        bool left = j > 0 && before >= 0 && a->link[j - 1] == before;
        bool right = j < a->targets && a->link[j] == behind;
        long value = (left && right ? 2L * a->targets : 0) - wrong * 2L + (forward ? right : left);
        if ((left || right) && (at < 0 || value > best)) best = value, at = j;
        if (j < a->targets && a->link[j] >= 0) wrong += a->link[j] < split ? -1 : 1;
    }
    return at;
}

/* The number of words of the translation that come before a stretch. Where neither of the words
 * beside it has come through, those further away decide. */
static int place(const struct spelling *s, const struct unspelled *x,
                 const struct heed_alignment *a)
{
    int before = word_before(a->source, a->sources, x->at), behind = before + 1, split = behind;
    bool forward = leans_forward(s->text, x->where);
    if (behind == a->sources) return a->targets;
    if (a->source[behind].at < x->at) before = behind; /* it stood inside of a word */
    if (before < 0) return 0;
    for (; before >= 0 || behind < a->sources; before--, behind++) {
        int at = place_between(a, before, behind, split, forward);
        if (at >= 0) return at;
    }
    return a->targets;
}

/* ---- with which spaces ---- */

/* Before or behind a stretch there is a space where there was one, and where a word comes to stand
 * to which it was not joined; but none before punctuation or behind an opening bracket. */
static bool wants_space(int32_t was, int32_t now, bool before, bool belongs)
{
    bool joined = before ? char_opens(now) : char_follows(now);
    if (char_is_space(now) || joined) return false;
    return char_is_space(was) || (char_is_spaced(now) && !char_is_spaced(was) && !belongs);
}

/* ---- the text ---- */

/* Where in the translation a stretch goes: in the place of the white space [start, end). */
struct spot {
    size_t start, end;
    int which;
};

static int compare_spots(const void *a, const void *b)
{
    const struct spot *x = a, *y = b;
    return x->start != y->start ? (x->start < y->start ? -1 : 1) : x->which - y->which;
}

static struct spot spot_of(const struct spelling *s, int which, const struct heed_result *r,
                           const struct heed_alignment *a)
{
    struct heed_span all = text_trimmed(s->read, strlen(s->read));
    size_t end = s->v[which].at > all.at ? r->len : 0;
    if (!a) return (struct spot){end, end, which};
    int at = place(s, &s->v[which], a);
    const struct heed_span *word = a->target;
    return (struct spot){at > 0 ? word[at - 1].at + word[at - 1].len : 0,
                         at < a->targets ? word[at].at : r->len, which};
}

static bool is_banned(const char *text, size_t len, const struct heed_wish *w)
{
    for (int i = 0; w && i < w->banned_n; i++)
        if (text_has(text, len, w->banned[i], strlen(w->banned[i]))) return true;
    return false;
}

/* Fills spot[s->n] with those that are copied, in their order; returns how many. */
static int spots_find(struct spot *spot, const struct spelling *s, const struct heed_result *r,
                      const struct heed_alignment *a, struct restore_options o)
{
    int n = 0;
    for (int i = 0; i < s->n && !o.nothing; i++) {
        const struct heed_span *x = &s->v[i].where;
        if (s->v[i].copied && !is_banned(s->text + x->at, x->len, o.wish))
            spot[n++] = spot_of(s, i, r, a);
    }
    qsort(spot, n, sizeof *spot, compare_spots);
    return n;
}

struct restored {
    char *text;
    ptrdiff_t *from; /* of each byte: its place in the translation, or -1 - that in the source */
    size_t n;
};

static void put(struct restored *to, char c, ptrdiff_t from)
{
    to->from[to->n] = from;
    to->text[to->n++] = c;
    to->text[to->n] = '\0';
}

static void put_stretch(struct restored *to, const struct spelling *s, struct heed_span x,
                        const char *text, size_t end)
{
    size_t behind = x.at + x.len;
    if (wants_space(char_before(s->text, x.at), char_before(to->text, to->n), true,
                    is_closing(s->text + x.at, x.len)))
        put(to, ' ', (ptrdiff_t)end);
    for (size_t i = x.at; i < behind; i++) put(to, s->text[i], -1 - (ptrdiff_t)i);
    if (wants_space(char_behind(s->text, behind), char_behind(text, end), false,
                    is_opening(s->text + x.at, x.len)))
        put(to, ' ', (ptrdiff_t)end);
}

static void restore(struct restored *to, const struct spelling *s, const char *text, size_t len,
                    const struct spot *spot, int n)
{
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        for (; at < spot[i].start; at++) put(to, text[at], (ptrdiff_t)at);
        at = spot[i].end;
        put_stretch(to, s, s->v[spot[i].which].where, text, at);
    }
    for (; at < len; at++) put(to, text[at], (ptrdiff_t)at);
}

/* ---- what is told of it ---- */

/* Adds to a list of the result. */
static enum heed_status list_add(const char *const **list, int *n, const struct spelling *s,
                                 int which, struct heed_error *err)
{
    struct texts all = {(char **)*list, *n};
    struct heed_span x = s->v[which].where;
    enum heed_status status = texts_add(&all, s->text + x.at, x.len, err);
    *list = (const char *const *)all.v;
    *n = all.n;
    return status;
}

static enum heed_status tell(struct heed_result *r, const struct spelling *s,
                             const struct spot *spot, int n, struct heed_error *err)
{
    enum heed_status status = HEED_OK;
    if (s->n) r->flags |= HEED_FLAG_UNSPELLED;
    for (int i = 0; i < s->n && !status; i++) {
        bool copied = false;
        for (int k = 0; k < n; k++) copied |= spot[k].which == i;
        status = copied ? list_add(&r->copied, &r->copied_n, s, i, err)
                        : list_add(&r->left_out, &r->left_out_n, s, i, err);
    }
    return status;
}

enum heed_status restore_given(struct heed_result *r, const struct spelling *s,
                               struct heed_error *err)
{
    return tell(r, s, NULL, 0, err);
}

/* ---- words ---- */

/* The word that has the byte at `at`, or -1. */
static int word_at(const struct heed_span *word, int n, size_t at)
{
    int i = word_before(word, n, at) + 1;
    return i < n && word[i].at <= at ? i : -1;
}

/* The source word that a byte of the restored translation comes from, or -1. */
static int origin(const struct restored *x, size_t at, const struct spelling *s,
                  const struct heed_alignment *a, const struct spans *words)
{
    ptrdiff_t from = x->from[at];
    if (from < 0) return word_at(words->v, (int)words->n, (size_t)(-1 - from));
    int target = word_at(a->target, a->targets, (size_t)from);
    if (target < 0 || a->link[target] < 0) return -1;
    const struct heed_span *read = &a->source[a->link[target]];
    return word_at(words->v, (int)words->n, s->origin[read->at + read->len - 1]);
}

static enum heed_status realign(struct heed_alignment **out, const struct restored *x,
                                const struct spelling *s, const struct heed_alignment *a,
                                struct heed_error *err)
{
    struct spans words[2] = {0};
    int *link;
    enum heed_status status = words_split(&words[0], s->text, strlen(s->text), err);
    if (!status) status = words_split(&words[1], x->text, x->n, err);
    if (!status && !(*out = alignment_make(words, &link, err))) status = HEED_ENOMEM;
    for (size_t i = 0; i < words[1].n && !status; i++)
        link[i] = origin(x, words[1].v[i].at + words[1].v[i].len - 1, s, a, &words[0]);
    free(words[0].v);
    free(words[1].v);
    return status;
}

enum heed_status restore_text(struct heed_result *r, const struct spelling *s,
                              const struct heed_alignment *a, struct restore_options o,
                              struct heed_alignment **out, struct heed_error *err)
{
    size_t room = r->len + strlen(s->text) + 2 * (size_t)s->n + 1; /* a space on either side */
    struct spot *spot = malloc((s->n + 1) * sizeof *spot);
    struct restored x = {malloc(room), malloc(room * sizeof *x.from), 0};
    enum heed_status status = HEED_OK;
    if (!spot || !x.text || !x.from)
        status = error_memory(err, room * sizeof *x.from, "a translation");
    if (!status) {
        int n = spots_find(spot, s, r, a, o);
        x.text[0] = '\0';
        restore(&x, s, r->text, r->len, spot, n);
        status = tell(r, s, spot, n, err);
    }
    if (!status && out) status = realign(out, &x, s, a, err);
    if (!status) {
        free((char *)r->text);
        r->text = x.text;
        r->len = x.n;
        x.text = NULL;
    }
    free(spot);
    free(x.text);
    free(x.from);
    return status;
}
