/*
 * subword.c - text to ids with BPE-dropout (Provilkov et al., 2020). Beside tokenizer, for training
 * alone.
 *
 * A word starts as a list of symbols, each a character or a tag. Two neighbours whose text together
 * is a piece can be joined (a merge of BPE). The join that makes the best piece is done first, and
 * of equal ones the leftmost. Dropout forgets a join when it is found. This is SentencePiece's
 * algorithm; its own dropout is not used because its random numbers come from a generator that
 * threads share.
 *
 * Call order: new, run..., free.
 */
#include "tokens/subword.h"

#include "base/array.h"
#include "base/error.h"
#include "base/random.h"
#include "base/utf8.h"
#include "tokens/spm.h"
#include "tokens/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* U+FFFD and SPM_SPACE, which stand for one byte of text, have three bytes. */
enum { GROWTH = 3 };

enum { NONE = -1 }; /* no piece, no symbol */

struct symbol {
    const char *text;
    size_t len;
    int prev, next;
    int32_t id;   /* NONE: a character that is not looked up yet */
    int32_t join; /* the piece that it makes with the next symbol; NONE: no piece, or dropped */
    bool tag;     /* never joined */
};

struct subword {
    uint64_t skip; /* a join is dropped if its 64 random bits are below this */
    struct spm_piece *piece;
    size_t longest; /* bytes of the longest piece */
    int32_t byte[256];
    int32_t *tag; /* ids of tags, the longest tag first */
    int tags;
    /* The ids of pieces by a hash of their text, with open addressing. */
    struct slot {
        uint32_t hash;
        int32_t id;
    } * slot;
    uint32_t mask; /* slots - 1 */
    /* The word being encoded. */
    char *text;
    struct symbol *symbol;
    size_t cap; /* in symbols */
    int n;
    uint64_t *heap; /* possible joins, the best on top: id << 32 | left symbol */
    size_t joins;
};

/* ---- the vocabulary ---- */

static uint32_t hash_of(const char *text, size_t len)
{
    uint64_t h = len;
    for (size_t i = 0; i < len; i++) h = (h ^ (unsigned char)text[i]) * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(h >> 32);
}

static int32_t piece_find(const struct subword *s, const char *text, size_t len)
{
    if (len > s->longest) return NONE;
    uint32_t hash = hash_of(text, len);
    for (uint32_t i = hash & s->mask; s->slot[i].id != NONE; i = (i + 1) & s->mask) {
        const struct spm_piece *p = &s->piece[s->slot[i].id];
        if (s->slot[i].hash == hash && p->len == len && !memcmp(p->text, text, len))
            return s->slot[i].id;
    }
    return NONE;
}

static void piece_put(struct subword *s, int32_t id)
{
    const struct spm_piece *p = &s->piece[id];
    uint32_t hash = hash_of(p->text, p->len), i = hash & s->mask;
    while (s->slot[i].id != NONE) i = (i + 1) & s->mask;
    s->slot[i] = (struct slot){hash, id};
    if (p->len > s->longest) s->longest = p->len;
}

static void tag_put(struct subword *s, int32_t id)
{
    int at = s->tags++;
    for (; at > 0 && s->piece[s->tag[at - 1]].len < s->piece[id].len; at--)
        s->tag[at] = s->tag[at - 1];
    s->tag[at] = id;
}

/* Puts the n pieces into the tables. Returns false where their ids are not in the order of their
 * scores, by which they are joined, or where they cannot write every byte. */
static bool pieces_put(struct subword *s, int n)
{
    const struct spm_piece *last = NULL;
    int bytes = 0;
    for (int32_t id = 0; id < n; id++) {
        const struct spm_piece *p = &s->piece[id];
        if (p->kind == SPM_UNUSED) return false;
        if (p->kind == SPM_TAG) tag_put(s, id);
        if (p->kind == SPM_BYTE) { /* <0x41> */
            s->byte[strtol(p->text + 3, NULL, 16) & 255] = id;
            bytes++;
        }
        if (p->kind == SPM_NORMAL) {
            if (last && p->score >= last->score) return false;
            last = p;
            piece_put(s, id);
        }
    }
    return bytes == 256;
}

static enum heed_status vocabulary_read(struct subword *s, const struct heed_tokenizer *t,
                                        struct heed_error *err)
{
    size_t len, slots = 1;
    const char *data = tokenizer_bytes(t, &len);
    int n = heed_tokenizer_size(t);
    struct spm_traits traits;
    enum heed_status st = spm_check(data, len, "the vocabulary", &traits, err);
    if (!st) st = spm_pieces(data, len, &s->piece, n, err);
    if (st) return st;
    while (slots < 4 * (size_t)n) slots *= 2;
    s->mask = (uint32_t)(slots - 1);
    s->slot = malloc(slots * sizeof *s->slot);
    s->tag = malloc((size_t)n * sizeof *s->tag);
    if (!s->slot || !s->tag) return error_memory(err, slots * sizeof *s->slot, "subword dropout");
    for (size_t i = 0; i < slots; i++) s->slot[i].id = NONE;
    if (!pieces_put(s, n) || !traits.words_alone)
        return error_set(err, HEED_EARG,
                         "subword dropout needs a vocabulary as heed trains them: BPE with byte "
                         "fallback, without normalization");
    return HEED_OK;
}

enum heed_status subword_new(struct subword **out, const struct heed_tokenizer *t, float rate,
                             struct heed_error *err)
{
    struct subword *s = calloc(1, sizeof *s);
    if (!s) return error_memory(err, sizeof *s, "subword dropout");
    s->skip = (uint64_t)((double)rate * 0x1p64);
    enum heed_status st = vocabulary_read(s, t, err);
    if (st) {
        subword_free(s);
        return st;
    }
    *out = s;
    return HEED_OK;
}

void subword_free(struct subword *s)
{
    if (!s) return;
    free(s->piece);
    free(s->tag);
    free(s->slot);
    free(s->text);
    free(s->symbol);
    free(s->heap);
    free(s);
}

/* ---- joins ---- */

static void heap_push(struct subword *s, uint64_t key)
{
    size_t i = s->joins++;
    for (; i > 0 && s->heap[(i - 1) / 2] > key; i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = key;
}

static uint64_t heap_pop(struct subword *s)
{
    uint64_t top = s->heap[0], key = s->heap[--s->joins];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < s->joins; i = child) {
        if (child + 1 < s->joins && s->heap[child + 1] < s->heap[child]) child++;
        if (s->heap[child] >= key) break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = key;
    return top;
}

/* Looks up the join of a symbol with the next one. */
static void join_look(struct subword *s, int left, uint64_t *random)
{
    struct symbol *x = &s->symbol[left];
    x->join = NONE;
    if (x->next == NONE) return;
    const struct symbol *y = &s->symbol[x->next];
    if (x->tag || y->tag) return;
    int32_t id = piece_find(s, x->text, x->len + y->len);
    if (id == NONE || random_next(random) < s->skip) return;
    x->join = id;
    heap_push(s, (uint64_t)id << 32 | (uint32_t)left);
}

static void join_do(struct subword *s, int left, uint64_t *random)
{
    struct symbol *x = &s->symbol[left], *y = &s->symbol[x->next];
    x->len += y->len;
    x->id = x->join;
    x->next = y->next;
    y->join = NONE;
    if (x->next != NONE) s->symbol[x->next].prev = left;
    if (x->prev != NONE) join_look(s, x->prev, random);
    join_look(s, left, random);
}

/* ---- words ---- */

/* Makes room for a word of so many bytes, and for its ids. */
static enum heed_status word_room(struct subword *s, size_t bytes, struct heed_ids *out,
                                  struct heed_error *err)
{
    size_t need = bytes + 1; /* symbols; one more for the space */
    if (need > s->cap) {
        size_t cap = 2 * need;
        free(s->text);
        free(s->symbol);
        free(s->heap);
        s->text = malloc(cap * GROWTH);
        s->symbol = malloc(cap * sizeof *s->symbol);
        s->heap = malloc(3 * cap * sizeof *s->heap); /* each join may add two */
        s->cap = s->text && s->symbol && s->heap ? cap : 0;
        if (!s->cap) return error_memory(err, cap * sizeof *s->symbol, "a word");
    }
    return array_reserve(&out->v, &out->cap, out->n + need * GROWTH, sizeof *out->v,
                         "the ids of a text", err);
}

/* The longest tag that a text begins with, or NONE. */
static int32_t tag_find(const struct subword *s, const char *text, size_t len)
{
    for (int i = 0; i < s->tags; i++) {
        const struct spm_piece *p = &s->piece[s->tag[i]];
        if (p->len <= len && p->text[0] == text[0] && !memcmp(p->text, text, p->len))
            return s->tag[i];
    }
    return NONE;
}

static void symbols_make(struct subword *s, size_t len)
{
    int n = 0;
    for (size_t at = 0; at < len; n++) {
        const char *text = s->text + at;
        int32_t tag = tag_find(s, text, len - at);
        size_t bytes = tag == NONE ? utf8_char(text, len - at) : s->piece[tag].len;
        at += bytes;
        s->symbol[n] = (struct symbol){
            text, bytes, n - 1, at < len ? n + 1 : NONE, tag, NONE, tag != NONE,
        };
    }
    s->n = n;
}

/* Writes SPM_SPACE and the word as valid UTF-8; returns the length of both. */
static size_t word_write(char *to, const char *text, size_t len)
{
    memcpy(to, SPM_SPACE, GROWTH);
    return GROWTH + utf8_mend(to + GROWTH, text, len);
}

static void symbol_append(const struct subword *s, const struct symbol *x, struct heed_ids *out)
{
    int32_t id = x->id == NONE ? piece_find(s, x->text, x->len) : x->id;
    if (id != NONE)
        out->v[out->n++] = id;
    else
        for (size_t i = 0; i < x->len; i++) out->v[out->n++] = s->byte[(unsigned char)x->text[i]];
}

static enum heed_status word_append(struct subword *s, const char *text, size_t len,
                                    uint64_t *random, struct heed_ids *out, struct heed_error *err)
{
    enum heed_status st = word_room(s, len, out, err);
    if (st) return st;
    symbols_make(s, word_write(s->text, text, len));
    for (int i = 0; i < s->n; i++) join_look(s, i, random);
    while (s->joins > 0) {
        uint64_t key = heap_pop(s);
        int left = (int)(uint32_t)key;
        if (s->symbol[left].join == (int32_t)(key >> 32)) join_do(s, left, random);
    }
    for (int i = 0; i != NONE; i = s->symbol[i].next) symbol_append(s, &s->symbol[i], out);
    return HEED_OK;
}

enum heed_status subword_run(struct subword *s, const char *text, size_t len, uint64_t random,
                             struct heed_ids *out, struct heed_error *err)
{
    if (len == 0) return HEED_OK;
    for (;;) {
        const char *space = memchr(text, ' ', len);
        size_t word = space ? (size_t)(space - text) : len;
        enum heed_status st = word_append(s, text, word, &random, out, err);
        if (st || !space) return st;
        text += word + 1;
        len -= word + 1;
    }
}
