/*
 * spm.c - walks a SentencePiece model file before the library sees it.
 *
 * The file is a protobuf message: fields of a number, a wire type and a value, some of them
 * messages themselves. Only what can make the library crash, hang or print is looked at; what it
 * checks by itself (a piece given twice, missing byte pieces) is left to it.
 *
 *     ModelProto       1 pieces*   2 trainer_spec   3 normalizer_spec   4 self_test_data
 *                      5 denormalizer_spec
 *     SentencePiece    1 piece (string)   2 score (float)   3 type (enum)
 *     TrainerSpec      3 model_type (enum)   24 treat_whitespace_as_suffix (bool)
 *     NormalizerSpec   2 precompiled_charsmap (bytes)   3 add_dummy_prefix (bool)
 *                      4 remove_extra_whitespaces (bool)   5 escape_whitespaces (bool)
 */
#include "text/spm.h"

#include "base/error.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The library builds its tries with a recursion as deep as the longest piece. */
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

/* False: the bytes are no protobuf message. Call while w->left > 0. */
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

/* What decides whether words stand alone; the values are those of an absent field. */
struct facts {
    bool bpe, space_behind;              /* TrainerSpec */
    bool table, prefix, squeeze, escape; /* NormalizerSpec */
    bool space_inside;                   /* a piece has a space other than at its front */
};

static bool space_inside(const char *piece, size_t n)
{
    for (size_t i = 1; i + 3 <= n; i++)
        if (!memcmp(piece + i, "\xe2\x96\x81", 3)) return true; /* U+2581 stands for a space */
    return memchr(piece, ' ', n) != NULL;
}

/* NULL, or what is wrong with one piece. */
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

/*
 * The table is a double-array trie of 32-bit units in front of NUL-terminated replacements. From
 * unit i a walk goes to the units (i ^ offset) ^ label for any label below 256, and a unit with a
 * leaf has the place of its replacement in unit i ^ offset; units with the top bit are such leaves
 * and end every walk. So a table is safe if each block a unit points to lies inside the table and
 * each replacement inside the text.
 */
static const char *charsmap_check(struct wire map)
{
    if (map.left == 0) return NULL;
    const char *wrong = "a broken normalization table";
    if (map.left < 4) return wrong;
    uint32_t bytes = word_read(map.at);
    if (bytes % 4 || bytes == 0 || bytes >= map.left - 4) return wrong;
    const unsigned char *unit = map.at + 4;
    uint32_t n = bytes / 4;
    size_t text = map.left - 4 - bytes;
    if (unit[bytes + text - 1] != 0) return wrong;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t u = word_read(unit + 4 * (size_t)i);
        if (u >> 31) continue;
        uint32_t to = i ^ (u >> 10) << ((u & 1u << 9) >> 6);
        if ((to | 0xff) >= n) return wrong;
        bool leaf = u >> 8 & 1;
        if (leaf && (word_read(unit + 4 * (size_t)to) & 0x7fffffff) >= text) return wrong;
    }
    return NULL;
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
        if (f.number == 24) facts->space_behind = f.value;
    }
    return NULL;
}

/* NULL, or what is wrong with one part of the model. */
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

enum heed_status spm_check(const char *data, size_t len, const char *name, bool *words_alone,
                           struct heed_error *err)
{
    struct wire w = {(const unsigned char *)data, len};
    struct facts facts = {.prefix = true, .squeeze = true, .escape = true};
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
    if (wrong)
        return error_set(err, HEED_EFORMAT, "%s is not a usable SentencePiece model: it has %s",
                         name, wrong);
    if (pieces == 0)
        return error_set(err, HEED_EFORMAT, "%s is not a SentencePiece model: it has no pieces",
                         name);
    *words_alone = facts.bpe && facts.prefix && facts.escape && !facts.space_behind &&
                   !facts.squeeze && !facts.table && !facts.space_inside;
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
