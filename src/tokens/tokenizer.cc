/*
 * tokenizer.cc - SentencePiece behind a small C interface: text to ids and back. Second stage of
 * the walk.
 *
 * NUL and bytes that are not UTF-8 are read as U+FFFD, one each.
 *
 * Call order: load or parse, encode and decode..., free.
 */
#include "tokens/tokenizer.h"

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "tokens/sentencepiece.hh"
#include "tokens/spm.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <sentencepiece_processor.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

struct heed_tokenizer {
    sentencepiece::SentencePieceProcessor processor;
    std::string bytes;
    int size, bos, eos;
    bool words_alone;     /* see spm.h */
    std::vector<int> gap; /* words_alone: the ids of an empty word, as between two spaces */
    std::vector<std::string> languages; /* the tags of languages, such as >>de<< */
    std::vector<std::string> codes;     /* the same without brackets, such as de */
    std::vector<const char *> code;     /* their characters */
    /* The same vocabulary in which the tags of languages are not tags, for texts that contain one
     * as text. It is loaded when the first such text comes. */
    mutable sentencepiece::SentencePieceProcessor plain;
    mutable std::once_flag plain_once;
    bool knows_bytes;            /* see tokenizer_spells */
    std::vector<char> unspelled; /* [size] whether tokenizer_spells is false of an id */
};

struct encoder {
    const heed_tokenizer *t;
    struct place {
        uint32_t at, n;
    };
    std::unordered_map<std::string_view, place> words; /* the place of a word in ids */
    std::deque<std::string> keys;                      /* owns the text of the keys of words */
    std::vector<int> ids;
    std::vector<int> fresh; /* ids of the word just encoded */
};

namespace
{

/* Where at least this part of the characters of the training text have pieces of their own, a model
 * has hardly seen any bytes: one character in ten thousand, and rarely the same one twice. */
constexpr float COVERAGE_OF_ALL = 0.9999f;
constexpr size_t MODEL_BYTES_MAX = size_t(64) << 20;
/* An encoder remembers this many words, none of more bytes than this; when it is full it forgets
 * all of them. */
constexpr size_t WORDS_MAX = 1 << 16, WORD_BYTES_MAX = 64;
enum heed_status parse(const char *data, size_t len, const char *name, struct heed_tokenizer *t,
                       struct heed_error *err)
{
    struct spm_traits traits;
    enum heed_status st = spm_check(data, len, name, &traits, err);
    if (st) return st;
    t->words_alone = traits.words_alone;
    t->bytes.assign(data, len);
    auto status = t->processor.LoadFromSerializedProto(t->bytes);
    if (!status.ok())
        return error_set(err, HEED_EFORMAT, "%s is not a usable SentencePiece model: %s", name,
                         words_of(status).c_str());
    t->size = t->processor.GetPieceSize();
    t->bos = t->processor.bos_id();
    t->eos = t->processor.eos_id();
    if (t->bos < 0 || t->eos < 0)
        return error_set(err, HEED_EFORMAT, "%s has no %s mark among its %d pieces", name,
                         t->bos < 0 ? "begin" : "end", t->size);
    for (int i = 0; i < t->size; i++) {
        const std::string &piece = t->processor.IdToPiece(i);
        if (!spm_is_language(piece.data(), piece.size())) continue;
        t->languages.push_back(piece);
        t->codes.push_back(piece.substr(2, piece.size() - 4));
    }
    for (const std::string &code : t->codes) t->code.push_back(code.c_str());
    int bytes = 0;
    for (int i = 0; i < t->size; i++) bytes += t->processor.IsByte(i);
    t->knows_bytes = bytes == BYTE_PIECES && traits.coverage < COVERAGE_OF_ALL;
    for (int i = 0; i < t->size; i++)
        t->unspelled.push_back(t->processor.IsUnknown(i) ||
                               (t->processor.IsByte(i) && !t->knows_bytes));
    /* The text " " is two empty words, one before the space and one behind it, so half of its ids
     * are those of one. */
    status = t->processor.Encode(" ", &t->gap);
    t->words_alone = t->words_alone && status.ok() && t->gap.size() % 2 == 0;
    t->gap.resize(t->gap.size() / 2);
    return HEED_OK;
}

enum heed_status encode(const sentencepiece::SentencePieceProcessor &processor,
                        std::string_view text, std::vector<int> *ids, struct heed_error *err)
{
    auto status = processor.Encode(text, ids);
    if (status.ok()) return HEED_OK;
    return error_set(err, HEED_EFORMAT, "SentencePiece cannot encode text: %s",
                     words_of(status).c_str());
}

/* ---- texts to translate ---- */

constexpr size_t STRETCH_BYTES = 1 << 16;
constexpr std::string_view WHITE_SPACE = "\t\n\v\f\r";

/* The length of the tag of a language that a text begins with; 0: none. */
size_t language_at(const struct heed_tokenizer *t, std::string_view text)
{
    for (const std::string &tag : t->languages)
        if (text.substr(0, tag.size()) == tag) return tag.size();
    return 0;
}

bool has_language(const struct heed_tokenizer *t, std::string_view text)
{
    if (t->languages.empty()) return false;
    for (size_t at = 0; (at = text.find(">>", at)) != text.npos; at++)
        if (language_at(t, text.substr(at))) return true;
    return false;
}

const sentencepiece::SentencePieceProcessor &without_languages(const struct heed_tokenizer *t)
{
    std::call_once(t->plain_once, [&] {
        std::string bytes = t->bytes;
        spm_disarm_languages(&bytes[0], bytes.size());
        auto status = t->plain.LoadFromSerializedProto(bytes);
        if (!status.ok()) throw std::runtime_error(words_of(status));
    });
    return t->plain;
}

/* A part of a text and the vocabulary that encodes it. */
struct stretch {
    const sentencepiece::SentencePieceProcessor *processor;
    size_t at, len;
};

/* Appends a stretch to out. Where words can be encoded on their own, a long stretch is cut at
 * spaces into several, because SentencePiece takes a hundred bytes of memory for each byte of a
 * text. */
void stretch_add(const struct heed_tokenizer *t, std::vector<stretch> *out, std::string_view text,
                 stretch x)
{
    size_t end = x.at + x.len;
    while (t->words_alone && end - x.at > STRETCH_BYTES) {
        size_t space = text.find(' ', x.at + STRETCH_BYTES);
        if (space == text.npos || space + 1 >= end) break;
        out->push_back({x.processor, x.at, space - x.at});
        x.at = space + 1;
    }
    out->push_back({x.processor, x.at, end - x.at});
}

/* Cuts a text to translate into stretches. The space between two stretches belongs to neither,
 * because SentencePiece puts one in front of every text. Most texts are one stretch; a tag at the
 * front is a stretch of its own where the rest of the text contains a tag that is text. */
std::vector<stretch> source_cut(const struct heed_tokenizer *t, std::string_view text, bool tagged)
{
    std::vector<stretch> out;
    size_t tag = tagged ? language_at(t, text) : 0, rest = 0;
    const auto *processor = &t->processor;
    if (has_language(t, text.substr(tag))) {
        processor = &without_languages(t);
        if (tag) out.push_back({&t->processor, 0, tag});
        if (tag) rest = tag + (text[tag] == ' ');
    }
    stretch_add(t, &out, text, {processor, rest, text.size() - rest});
    return out;
}

/* The text as valid UTF-8, with a space for each other byte of white space. Its offsets are those
 * of `text` where that was valid UTF-8. */
std::string source_text(const char *text, size_t len)
{
    std::string s = well_formed(text, len);
    for (size_t at = 0; (at = s.find_first_of(WHITE_SPACE, at)) != s.npos;) s[at] = ' ';
    return s;
}

enum heed_status ids_append(struct heed_ids *out, const int *id, size_t n, struct heed_error *err)
{
    static_assert(sizeof(int) == sizeof(int32_t), "ids are copied as they are");
    if (n == 0) return HEED_OK;
    enum heed_status st =
        array_reserve(&out->v, &out->cap, out->n + n, sizeof *out->v, "the ids of a text", err);
    if (st) return st;
    memcpy(out->v + out->n, id, n * sizeof *id);
    out->n += n;
    return HEED_OK;
}

enum heed_status word_append(struct encoder *e, std::string_view word, struct heed_ids *out,
                             struct heed_error *err)
{
    if (word.empty()) return ids_append(out, e->t->gap.data(), e->t->gap.size(), err);
    auto known = e->words.find(word);
    if (known != e->words.end())
        return ids_append(out, e->ids.data() + known->second.at, known->second.n, err);
    enum heed_status st = encode(e->t->processor, word, &e->fresh, err);
    if (st) return st;
    if (word.size() <= WORD_BYTES_MAX) {
        if (e->words.size() == WORDS_MAX) {
            e->words.clear();
            e->keys.clear();
            e->ids.clear();
        }
        /* The word is entered last, so that it is not remembered if memory for the others runs out.
         */
        auto at = uint32_t(e->ids.size());
        e->ids.insert(e->ids.end(), e->fresh.begin(), e->fresh.end());
        e->keys.emplace_back(word);
        e->words[e->keys.back()] = {at, uint32_t(e->fresh.size())};
    }
    return ids_append(out, e->fresh.data(), e->fresh.size(), err);
}

enum heed_status text_copy(const std::string &from, char **text, size_t *len,
                           struct heed_error *err)
{
    char *copy = static_cast<char *>(malloc(from.size() + 1));
    if (!copy) return error_memory(err, from.size() + 1, "text");
    memcpy(copy, from.c_str(), from.size() + 1);
    *text = copy;
    *len = from.size();
    return HEED_OK;
}

std::string tags_of(const struct heed_tokenizer *t)
{
    std::string all;
    for (const std::string &tag : t->languages) all += " " + tag;
    return all.empty() ? " none" : all;
}

/* Writes the ends of the pieces of text, plus `offset`, to end[*at] and further; there is room for
 * n. */
enum heed_status ends_of(const sentencepiece::ImmutableSentencePieceText &text, size_t offset,
                         size_t *end, size_t *at, size_t n, struct heed_error *err)
{
    size_t pieces = text.pieces_size();
    if (pieces > n - *at)
        return error_set(err, HEED_EFORMAT, "a text has %zu pieces, expected %zu", *at + pieces, n);
    for (size_t i = 0; i < pieces; i++) end[(*at)++] = offset + text.pieces(int(i)).end();
    return HEED_OK;
}

enum heed_status ends_found(size_t at, size_t n, struct heed_error *err)
{
    if (at == n) return HEED_OK;
    return error_set(err, HEED_EFORMAT, "a text has %zu pieces, expected %zu", at, n);
}

} // namespace

struct heed_tokenizer *tokenizer_parse(const char *data, size_t len, const char *name,
                                       struct heed_error *err)
{
    std::unique_ptr<heed_tokenizer> t;
    enum heed_status st = guarded(name, err, [&] {
        t = std::make_unique<heed_tokenizer>();
        return parse(data, len, name, t.get(), err);
    });
    return st ? nullptr : t.release();
}

struct heed_tokenizer *heed_tokenizer_load(const char *path, struct heed_error *err)
{
    char *data;
    size_t len;
    if (!path) {
        error_null(err, "path");
        return nullptr;
    }
    if (file_read(path, MODEL_BYTES_MAX, &data, &len, err)) return nullptr;
    struct heed_tokenizer *t = tokenizer_parse(data, len, path, err);
    free(data);
    return t;
}

void heed_tokenizer_free(struct heed_tokenizer *t)
{
    delete t;
}

int heed_tokenizer_size(const struct heed_tokenizer *t)
{
    return t ? t->size : 0;
}

int tokenizer_bos(const struct heed_tokenizer *t)
{
    return t->bos;
}

int tokenizer_eos(const struct heed_tokenizer *t)
{
    return t->eos;
}

int tokenizer_languages(const struct heed_tokenizer *t, const char *const **out)
{
    *out = t->code.data();
    return int(t->code.size());
}

const char *heed_tokenizer_piece(const struct heed_tokenizer *t, int32_t id)
{
    return t && id >= 0 && id < t->size ? t->processor.IdToPiece(id).c_str() : nullptr;
}

enum heed_status tokenizer_tag(const struct heed_tokenizer *t, const char *language,
                               struct heed_ids *out, struct heed_error *err)
{
    return guarded("a tag", err, [&] {
        std::string tag = ">>" + std::string(language) + "<<";
        if (t->processor.IsUnknown(t->processor.PieceToId(tag)))
            return error_set(err, HEED_EARG, "the vocabulary has no tag %s; it has%s", tag.c_str(),
                             tags_of(t).c_str());
        return heed_encode(t, tag.data(), tag.size(), out, err);
    });
}

bool tokenizer_spells(const struct heed_tokenizer *t, const int32_t *id, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (t->unspelled[size_t(id[i])]) return false;
    return true;
}

bool tokenizer_knows_bytes(const struct heed_tokenizer *t)
{
    return t->knows_bytes;
}

enum heed_status tokenizer_well_formed(const char *text, size_t len, char **out,
                                       struct heed_error *err)
{
    return guarded("reading text", err,
                   [&] { return text_copy(well_formed(text, len), out, &len, err); });
}

enum heed_status tokenizer_encode_source(const struct heed_tokenizer *t, const char *text,
                                         size_t len, bool tagged, struct heed_ids *out,
                                         struct heed_error *err)
{
    return guarded("encoding text", err, [&] {
        std::string source = source_text(text, len);
        std::vector<int> ids;
        enum heed_status st = HEED_OK;
        for (const stretch &x : source_cut(t, source, tagged)) {
            if (!st)
                st = encode(*x.processor, std::string_view(source).substr(x.at, x.len), &ids, err);
            if (!st) st = ids_append(out, ids.data(), ids.size(), err);
        }
        return st;
    });
}

enum heed_status tokenizer_source_ends(const struct heed_tokenizer *t, const char *text, size_t len,
                                       bool tagged, size_t *end, size_t n, struct heed_error *err)
{
    return guarded("encoding text", err, [&] {
        std::string source = source_text(text, len);
        size_t at = 0;
        enum heed_status st = HEED_OK;
        for (const stretch &x : source_cut(t, source, tagged)) {
            auto part = std::string_view(source).substr(x.at, x.len);
            if (!st)
                st = ends_of(x.processor->EncodeAsImmutableProto(part), x.at, end, &at, n, err);
        }
        return st ? st : ends_found(at, n, err);
    });
}

enum heed_status tokenizer_decode_ends(const struct heed_tokenizer *t, const int32_t *id, size_t n,
                                       char **text, size_t *len, size_t *end,
                                       struct heed_error *err)
{
    return guarded("decoding ids", err, [&] {
        size_t at = 0;
        auto decoded = t->processor.DecodeIdsAsImmutableProto(std::vector<int>(id, id + n));
        enum heed_status st = ends_of(decoded, 0, end, &at, n, err);
        if (!st) st = ends_found(at, n, err);
        return st ? st : text_copy(decoded.text(), text, len, err);
    });
}

const char *tokenizer_bytes(const struct heed_tokenizer *t, size_t *len)
{
    *len = t->bytes.size();
    return t->bytes.data();
}

enum heed_status heed_encode(const struct heed_tokenizer *t, const char *text, size_t len,
                             struct heed_ids *out, struct heed_error *err)
{
    if (!t) return error_null(err, "tokenizer");
    if (!text && len) return error_null(err, "text");
    if (!out) return error_null(err, "out");
    return guarded("encoding text", err, [&] {
        std::vector<int> ids;
        enum heed_status st = utf8_valid(text, len)
                                  ? encode(t->processor, std::string_view(text, len), &ids, err)
                                  : encode(t->processor, well_formed(text, len), &ids, err);
        return st ? st : ids_append(out, ids.data(), ids.size(), err);
    });
}

struct encoder *encoder_new(const struct heed_tokenizer *t, struct heed_error *err)
{
    std::unique_ptr<encoder> e;
    enum heed_status st = guarded("an encoder", err, [&] {
        e = std::make_unique<encoder>();
        e->t = t;
        return HEED_OK;
    });
    return st ? nullptr : e.release();
}

void encoder_free(struct encoder *e)
{
    delete e;
}

enum heed_status encoder_run(struct encoder *e, const char *text, size_t len, struct heed_ids *out,
                             struct heed_error *err)
{
    if (len == 0 || !e->t->words_alone || !utf8_valid(text, len))
        return heed_encode(e->t, text, len, out, err);
    return guarded("encoding text", err, [&] {
        std::string_view rest(text, len);
        for (;;) {
            size_t space = rest.find(' ');
            enum heed_status st = word_append(e, rest.substr(0, space), out, err);
            if (st || space == std::string_view::npos) return st;
            rest.remove_prefix(space + 1);
        }
    });
}

enum heed_status heed_decode(const struct heed_tokenizer *t, const int32_t *id, size_t n,
                             char **text, size_t *len, struct heed_error *err)
{
    if (!t) return error_null(err, "tokenizer");
    if (!id && n) return error_null(err, "id");
    if (!text || !len) return error_null(err, text ? "len" : "text");
    for (size_t i = 0; i < n; i++)
        if (id[i] < 0 || id[i] >= t->size)
            return error_set(err, HEED_EARG, "id %d is not in the vocabulary of %d pieces", id[i],
                             t->size);
    return guarded("decoding ids", err, [&] {
        std::string out;
        auto status = t->processor.Decode(std::vector<int>(id, id + n), &out);
        if (!status.ok())
            return error_set(err, HEED_EFORMAT, "SentencePiece cannot decode ids: %s",
                             words_of(status).c_str());
        return text_copy(out, text, len, err);
    });
}
