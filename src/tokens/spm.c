/*
 * spm.c - checks a SentencePiece model file before the library reads it.
 *
 * The file is a protobuf message: fields of a number, a wire type and a value, some of them
 * messages themselves. Only what can make the library crash, hang or print is checked here; the
 * library itself reports other faults (a piece given twice, missing byte pieces).
 *
 *     ModelProto       1 pieces*   2 trainer_spec   3 normalizer_spec   4 self_test_data
 *                      5 denormalizer_spec
 *     SentencePiece    1 piece (string)   2 score (float)   3 type (enum)
 *     TrainerSpec      3 model_type (enum)   10 character_coverage (float)   16 num_threads (int)
 *                      24 treat_whitespace_as_suffix (bool)
 *     NormalizerSpec   2 precompiled_charsmap (bytes)   3 add_dummy_prefix (bool)
 *                      4 remove_extra_whitespaces (bool)   5 escape_whitespaces (bool)
 */
#include "tokens/spm.h"

#include "base/error.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a piece. The library recurses as deep as the longest piece when it builds its tries. */
enum { PIECE_MAX = 4096 };

enum wire_type { VARINT = 0, WORD64 = 1, BYTES = 2, WORD32 = 5 };

struct wire {
    const unsigned char *at;
    size_t left;
};

struct field {
    uint32_t number;
    uint32_t type;
    uint64_t value;    /* VARINT, WORD32 */
    struct wire bytes; /* BYTES */
};

static bool varint_read(struct wire *w, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && w->left > 0; shift += 7) {
        unsigned char byte = *w->at++;
        w->left--;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

static uint32_t word_read(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Reads the next field; there must be a byte left. Returns false where the bytes are not a protobuf
 * message. */
static bool field_read(struct wire *w, struct field *f)
{
    uint64_t tag, len;
    if (!varint_read(w, &tag) || tag >> 32) return false;
    *f = (struct field){.number = (uint32_t)(tag >> 3), .type = tag & 7};
    if (f->number == 0) return false;
    if (f->type == VARINT) return varint_read(w, &f->value);
    if (f->type == BYTES) {
        if (!varint_read(w, &len)) return false;
    } else if (f->type == WORD64 || f->type == WORD32) {
        len = f->type == WORD64 ? 8 : 4;
    } else {
        return false;
    }
    if (len > w->left) return false;
    f->bytes = (struct wire){w->at, (size_t)len};
    if (f->type == WORD32) f->value = word_read(w->at);
    w->at += len;
    w->left -= (size_t)len;
    return true;
}

/* What decides spm_traits.words_alone, and the coverage. */
struct facts {
    bool bpe, space_suffix;              /* TrainerSpec */
    float coverage;                      /* TrainerSpec */
    bool table, prefix, squeeze, escape; /* NormalizerSpec */
    bool space_inside;                   /* a piece has a space that is not its first character */
};

static bool space_inside(const char *piece, size_t n)
{
    for (size_t i = 1; i + 3 <= n; i++)
        if (!memcmp(piece + i, SPM_SPACE, 3)) return true;
    return memchr(piece, ' ', n) != NULL;
}

/* Reads one piece. Returns NULL, or what is wrong with it. */
static const char *piece_read(struct wire w, struct spm_piece *p)
{
    struct field f;
    *p = (struct spm_piece){.text = "", .kind = SPM_NORMAL};
    while (w.left > 0) {
        if (!field_read(&w, &f)) return "a piece that is no message";
        if (f.number == 1) {
            if (f.type != BYTES || f.bytes.left == 0 || f.bytes.left > PIECE_MAX)
                return "a piece that is empty or too long";
            if (!utf8_valid((const char *)f.bytes.at, f.bytes.left))
                return "a piece that is not UTF-8";
            p->text = (const char *)f.bytes.at;
            p->len = f.bytes.left;
        } else if (f.number == 2) {
            uint32_t bits = (uint32_t)f.value;
            memcpy(&p->score, &bits, sizeof p->score);
            if (f.type != WORD32 || !isfinite(p->score)) return "a piece with a wrong score";
        } else if (f.number == 3) {
            p->kind = (int)f.value;
        }
    }
    return NULL;
}

/* The answer of a check that ran out of memory. */
static const char NO_MEMORY[] = "more than there is memory to check";

/*
 * The normalization table is a double-array trie of 32-bit units, followed by NUL-terminated
 * replacements. A lookup begins at unit 0 and goes from unit i to unit i ^ offset ^ byte for each
 * byte of the text, as long as the label of that unit is the byte. The top bit of a unit is part of
 * its label, so units that have it are never entered. A unit with a leaf ends a rule; the place of
 * its replacement is in unit i ^ offset. The label of unit 0 is never read.
 *
 * So a table is safe if each block of 256 units that a lookup can read lies inside the table, if
 * each replacement lies inside the text behind it, and if no lookup meets more rules than the
 * library has room for.
 */
struct table {
    const unsigned char *unit;
    uint32_t n;
};

/* The library stores the rules that one lookup meets in an array of this length. */
enum { RULES_MAX = 32 };

static uint32_t unit_at(const struct table *t, uint32_t i)
{
    return word_read(t->unit + 4 * (size_t)i);
}

static bool unit_has_leaf(uint32_t u)
{
    return u >> 8 & 1;
}

/* The unit that follows unit i for byte 0; for another byte, it is this one ^ byte. */
static uint32_t unit_next(const struct table *t, uint32_t i)
{
    uint32_t u = unit_at(t, i);
    return i ^ (u >> 10) << ((u & 1u << 9) >> 6);
}

static bool is_child(const struct table *t, uint32_t i, uint32_t byte)
{
    return (unit_at(t, i) & (1u << 31 | 0xff)) == byte;
}

/* Finds, by depth-first search from the root, the most rules that a lookup can meet. Several units
 * may lead to the same one, so each is searched once. A cycle is refused, because a lookup could
 * follow it for ever. */
static const char *lookups_check(const struct table *t)
{
    enum { UNSEEN = 255, OPEN = 254 };
    struct visit {
        uint32_t unit;
        uint16_t byte; /* the next byte to follow */
        uint8_t most;  /* most rules found below the unit so far */
    } *path = malloc(t->n * sizeof *path);
    uint8_t *rules = malloc(t->n); /* [n] most rules from each unit on, its own included */
    const char *wrong = path && rules ? NULL : NO_MEMORY;
    size_t depth = 0;
    if (!wrong) {
        memset(rules, UNSEEN, t->n);
        path[depth++] = (struct visit){0};
        rules[0] = OPEN;
    }
    while (!wrong && depth > 0) {
        struct visit *v = &path[depth - 1];
        if (v->byte < 256) {
            uint32_t byte = v->byte++, child = unit_next(t, v->unit) ^ byte;
            if (!is_child(t, child, byte)) continue;
            if (rules[child] == OPEN) {
                wrong = "a normalization table with a cycle";
            } else if (rules[child] == UNSEEN) {
                rules[child] = OPEN;
                path[depth++] = (struct visit){.unit = child};
            } else if (rules[child] > v->most) {
                v->most = rules[child];
            }
            continue;
        }
        int most = v->most + (depth > 1 && unit_has_leaf(unit_at(t, v->unit)));
        if (most > RULES_MAX) wrong = "a normalization table with too many rules for one text";
        rules[v->unit] = (uint8_t)most;
        depth--;
        if (depth > 0 && most > path[depth - 1].most) path[depth - 1].most = (uint8_t)most;
    }
    free(path);
    free(rules);
    return wrong;
}

static const char *charsmap_check(struct wire map)
{
    if (map.left == 0) return NULL;
    const char *wrong = "a broken normalization table";
    if (map.left < 4) return wrong;
    uint32_t bytes = word_read(map.at);
    if (bytes % 4 || bytes == 0 || bytes >= map.left - 4) return wrong;
    struct table t = {map.at + 4, bytes / 4};
    size_t text = map.left - 4 - bytes;
    if (t.unit[bytes + text - 1] != 0) return wrong;
    for (uint32_t i = 0; i < t.n; i++) {
        uint32_t u = unit_at(&t, i), next = unit_next(&t, i);
        if (u >> 31 && i > 0) continue;
        if ((next | 0xff) >= t.n) return wrong;
        if (unit_has_leaf(u) && (unit_at(&t, next) & 0x7fffffff) >= text) return wrong;
    }
    return lookups_check(&t);
}

static const char *normalizer_check(struct wire w, struct facts *facts)
{
    struct field f;
    while (w.left > 0) {
        if (!field_read(&w, &f)) return "a normalizer that is no message";
        if (f.number == 2) {
            const char *wrong = f.type == BYTES ? charsmap_check(f.bytes) : "a wrong normalizer";
            if (wrong) return wrong;
            facts->table = f.bytes.left > 0;
        }
        if (f.number == 3) facts->prefix = f.value;
        if (f.number == 4) facts->squeeze = f.value;
        if (f.number == 5) facts->escape = f.value;
    }
    return NULL;
}

static const char *trainer_check(struct wire w, struct facts *facts)
{
    enum { MODEL_BPE = 2 };
    struct field f;
    while (w.left > 0) {
        if (!field_read(&w, &f)) return "a trainer that is no message";
        if (f.number == 3) facts->bpe = f.value == MODEL_BPE;
        if (f.number == 10 && f.type == WORD32) {
            uint32_t bits = (uint32_t)f.value;
            memcpy(&facts->coverage, &bits, sizeof facts->coverage);
        }
        if (f.number == 24) facts->space_suffix = f.value;
    }
    return NULL;
}

/* Checks one field of the model. Returns NULL, or what is wrong with it. */
static const char *part_check(const struct field *f, struct facts *facts)
{
    struct facts ignored;
    struct spm_piece piece;
    const char *wrong;
    switch (f->number) {
    case 1:
        wrong = piece_read(f->bytes, &piece);
        facts->space_inside |= space_inside(piece.text, piece.len);
        return wrong;
    case 2:
        return trainer_check(f->bytes, facts);
    case 3:
        return normalizer_check(f->bytes, facts);
    case 4:
        return f->bytes.left > 0 ? "self tests, which would print" : NULL;
    case 5:
        return normalizer_check(f->bytes, &ignored);
    default:
        return NULL;
    }
}

/* ---- tags ---- */

/* The library stores the tags that a text begins with in an array of this length. */
enum { TAGS_MAX = 64 };

static int by_text(const void *x, const void *y)
{
    const struct spm_piece *a = x, *b = y;
    int order = memcmp(a->text, b->text, a->len < b->len ? a->len : b->len);
    return order ? order : (a->len > b->len) - (a->len < b->len);
}

/* In sorted order the prefixes of a tag come before it. `begins` is the stack of those tags that
 * are prefixes of the one being looked at. */
static const char *tags_check(struct spm_piece *tag, int n)
{
    const struct spm_piece *begins[TAGS_MAX];
    int depth = 0;
    qsort(tag, (size_t)n, sizeof *tag, by_text);
    for (int i = 0; i < n; i++) {
        while (depth > 0 && (begins[depth - 1]->len > tag[i].len ||
                             memcmp(begins[depth - 1]->text, tag[i].text, begins[depth - 1]->len)))
            depth--;
        if (depth == TAGS_MAX) return "too many tags that begin with one another";
        begins[depth++] = &tag[i];
    }
    return NULL;
}

static const char *pieces_check(const char *data, size_t len, int n)
{
    struct spm_piece *piece;
    if (spm_pieces(data, len, &piece, n, NULL)) return NO_MEMORY;
    int tags = 0;
    for (int i = 0; i < n; i++)
        if (piece[i].kind == SPM_TAG) piece[tags++] = piece[i];
    const char *wrong = tags_check(piece, tags);
    free(piece);
    return wrong;
}

enum heed_status spm_check(const char *data, size_t len, const char *name, struct spm_traits *out,
                           struct heed_error *err)
{
    struct wire w = {(const unsigned char *)data, len};
    /* defaults of fields that are absent */
    struct facts facts = {.prefix = true, .squeeze = true, .escape = true, .coverage = 0.9995f};
    struct field f;
    int pieces = 0;
    const char *wrong = NULL;
    while (!wrong && w.left > 0) {
        if (!field_read(&w, &f) || (f.number <= 5 && f.type != BYTES))
            return error_set(err, HEED_EFORMAT,
                             "%s is not a SentencePiece model: byte %zu of %zu is not understood",
                             name, len - w.left, len);
        wrong = part_check(&f, &facts);
        pieces += f.number == 1;
    }
    if (!wrong && pieces > 0) wrong = pieces_check(data, len, pieces);
    if (wrong == NO_MEMORY) return error_memory(err, len, name);
    if (wrong)
        return error_set(err, HEED_EFORMAT, "%s is not a usable SentencePiece model: it has %s",
                         name, wrong);
    if (pieces == 0)
        return error_set(err, HEED_EFORMAT, "%s is not a SentencePiece model: it has no pieces",
                         name);
    out->words_alone = facts.bpe && facts.prefix && facts.escape && !facts.space_suffix &&
                       !facts.squeeze && !facts.table && !facts.space_inside;
    out->coverage = facts.coverage;
    return HEED_OK;
}

enum heed_status spm_pieces(const char *data, size_t len, struct spm_piece **out, int n,
                            struct heed_error *err)
{
    struct wire w = {(const unsigned char *)data, len};
    struct field f;
    struct spm_piece *piece = malloc((size_t)n * sizeof *piece);
    if (!piece) return error_memory(err, (size_t)n * sizeof *piece, "the pieces of a vocabulary");
    for (int i = 0; i < n && field_read(&w, &f);)
        if (f.number == 1) piece_read(f.bytes, &piece[i++]);
    *out = piece;
    return HEED_OK;
}

bool spm_is_language(const char *piece, size_t len)
{
    return len > 4 && !memcmp(piece, ">>", 2) && !memcmp(piece + len - 2, "<<", 2);
}

void spm_disarm_languages(char *data, size_t len)
{
    struct wire w = {(const unsigned char *)data, len};
    struct field f, inside;
    struct spm_piece piece;
    while (w.left > 0 && field_read(&w, &f)) {
        if (f.number != 1 || piece_read(f.bytes, &piece)) continue;
        if (piece.kind != SPM_TAG || !spm_is_language(piece.text, piece.len)) continue;
        struct wire p = f.bytes;
        while (p.left > 0 && field_read(&p, &inside)) {
            char *kind = data + (p.at - (const unsigned char *)data) - 1;
            if (inside.number == 3 && *kind == SPM_TAG) *kind = SPM_MARK;
        }
    }
}

static char *varint_write(char *to, size_t value)
{
    for (; value >= 128; value >>= 7) *to++ = (char)(value % 128 | 128);
    *to++ = (char)value;
    return to;
}

/* Moves [from, end) down to `to`; returns where it ends there. */
static char *close_gap(char *to, const char *from, const char *end)
{
    memmove(to, from, (size_t)(end - from));
    return to + (end - from);
}

size_t spm_forget_threads(char *data, size_t len)
{
    struct wire w = {(const unsigned char *)data, len};
    struct field f, inside;
    while (w.left > 0) {
        char *at = data + (len - w.left), *end = data + len;
        if (!field_read(&w, &f)) break;
        if (f.number != 2 || f.type != BYTES) continue;
        struct wire spec = f.bytes;
        while (spec.left > 0) {
            const char *from = (const char *)spec.at;
            if (!field_read(&spec, &inside)) return len;
            if (inside.number != 16) continue;
            const char *content = (const char *)f.bytes.at, *behind = (const char *)spec.at;
            size_t left = f.bytes.left - (size_t)(behind - from), before = (size_t)(from - content);
            at = varint_write(at + 1, left); /* the new length, behind the field's number */
            at = close_gap(at, content, content + before);
            return (size_t)(close_gap(at, behind, end) - data);
        }
    }
    return len;
}
