/*
 * tokenizer.cc - SentencePiece behind a small C face: text to ids and back. Second stage of the
 * walk, and the only C++ of the project: the library is C++, and no exception may leave this file.
 *
 * The models trained here are lossless: BPE with byte fallback over text that is not normalized,
 * so decode(encode(x)) == x for every well-formed text without U+2581, the sign SentencePiece
 * writes for a space. NUL and bytes that are not UTF-8 become U+FFFD, one each.
 *
 * Call order: train once; then load or parse, encode and decode..., free.
 */
#include "text/tokenizer.h"

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "text/input.h"
#include "text/spm.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <pthread.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <system_error>
#include <unordered_map>
#include <vector>

struct heed_tokenizer {
    sentencepiece::SentencePieceProcessor processor;
    std::string bytes;
    int size, bos, eos;
    bool words_alone;     /* see spm.h */
    std::vector<int> gap; /* words_alone: the ids of an empty word, as between two spaces */
    std::vector<std::string> languages; /* their tags */
    /* The same vocabulary where these are no tags, for texts that hold one; loaded when there is
     * such a text. */
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
    std::unordered_map<std::string_view, place> words; /* where in ids */
    std::deque<std::string> keys;                      /* what the views of words look at */
    std::vector<int> ids;
    std::vector<int> fresh; /* of a word just encoded */
};

namespace
{

/* The trainer holds its sentences in memory. Words are counted once each, however often they come;
 * but in a language without spaces each sentence is a word of its own, and costs 60 bytes of memory
 * and 10 microseconds a byte. Of a larger corpus a part within both limits is enough. */
constexpr int64_t TRAIN_SENTENCES = 2000000, TRAIN_UNSPACED_BYTES = 8 << 20;
constexpr size_t UNSPACED_BYTES = 64; /* no word is longer */
/* Longer lines are not sentences; the trainer would skip them by itself. */
constexpr size_t TRAIN_SENTENCE_BYTES = 4192;
/* A character gets a piece of its own when it comes twice, and once in so many; others are written
 * as bytes. */
constexpr int64_t RARE_CHARACTER = 10000000;
constexpr int MARKS = 3, BYTE_PIECES = 256, PIECES_MAX = 1 << 20;
/* SentencePiece recurses over the bytes of a tag, and has room for 64 tags that a text begins with.
 */
constexpr size_t TAG_BYTES_MAX = 256;
constexpr int TAGS_INSIDE_MAX = 32;
/* Where at least this part of the characters of the training text have pieces of their own, a model
 * has hardly seen the bytes of any other: one character in ten thousand, and each time another. */
constexpr float COVERAGE_OF_ALL = 0.9999f;
constexpr size_t MODEL_BYTES_MAX = size_t(64) << 20;
/* An encoder remembers this many words, of at most so many bytes; then it starts anew. */
constexpr size_t WORDS_MAX = 1 << 16, WORD_BYTES_MAX = 64;

/* Runs body, which returns a status, and turns what it throws into an error. */
template <class Body> enum heed_status guarded(const char *what, struct heed_error *err, Body body)
{
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return error_set(err, HEED_ENOMEM, "out of memory: %s", what);
    } catch (const std::system_error &e) {
        return error_set(err, HEED_ENOMEM, "%s: cannot start a thread: %s", what, e.what());
    } catch (const std::exception &e) {
        if (strstr(e.what(), "bad_alloc")) /* in the words of a library below SentencePiece */
            return error_set(err, HEED_ENOMEM, "out of memory: %s", what);
        return error_set(err, HEED_EFORMAT, "%s: SentencePiece failed: %s", what, e.what());
    } catch (...) {
        return error_set(err, HEED_EFORMAT, "%s: SentencePiece failed", what);
    }
}

std::string well_formed(const char *text, size_t len)
{
    std::string out;
    out.reserve(len);
    for (size_t i = 0; i < len;) {
        size_t n = utf8_char(text + i, len - i);
        if (n)
            out.append(text + i, n);
        else
            out.append("\xef\xbf\xbd");
        i += n ? n : 1;
    }
    return out;
}

/* What SentencePiece says, without the place in its source and the condition that it puts in front;
 * where it says nothing else, the condition. */
std::string words_of(const sentencepiece::util::Status &status)
{
    std::string text = status.ToString();
    size_t at = text.rfind("] ");
    return at == std::string::npos || at + 2 == text.size() ? text : text.substr(at + 2);
}

/* Bytes of a sentence that stand in runs without a space too long to be words. */
size_t unspaced(std::string_view sentence)
{
    size_t bytes = 0;
    for (size_t at = 0; at < sentence.size();) {
        size_t run = std::min(sentence.find(' ', at), sentence.size()) - at;
        if (run > UNSPACED_BYTES) bytes += run;
        at += run + 1;
    }
    return bytes;
}

/* How many of all the sentences of a corpus are used. */
struct sample {
    int64_t keep, total;
};

/*
 * SentencePiece writes its sentences anew in threads of its own, in which a bad_alloc would end the
 * program: they are started only where there is the memory that they will ask for. Each thread
 * takes a stack, a heap of malloc, for which glibc reserves 128 MB of addresses at first, and some
 * scratch; together they take the sentences once more. It starts as many threads as it is told,
 * which are as many as it takes by itself, or else one.
 */
constexpr int TRAIN_THREADS = 16;
constexpr size_t THREAD_HEAP = size_t(128) << 20, THREAD_SCRATCH = size_t(1) << 20;

size_t normalized_bytes(const std::string &sentence)
{
    constexpr size_t SPACE = 3, STRING = 48; /* a space's sign; what malloc adds to a string */
    return sentence.size() + STRING +
           SPACE * (1 + std::count(sentence.begin(), sentence.end(), ' '));
}

bool threads_fit(int threads, size_t bytes)
{
    pthread_attr_t attr;
    size_t stack = size_t(8) << 20;
    if (pthread_attr_init(&attr) == 0) {
        pthread_attr_getstacksize(&attr, &stack);
        pthread_attr_destroy(&attr);
    }
    size_t addresses = size_t(threads) * (stack + THREAD_HEAP);
    void *reserved =
        mmap(nullptr, addresses, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *memory = malloc(bytes + size_t(threads) * THREAD_SCRATCH);
    bool fit = reserved != MAP_FAILED && memory;
    free(memory);
    if (reserved != MAP_FAILED) munmap(reserved, addresses);
    return fit;
}

/*
 * The sentences of the files, a line or a field between tabs each. SentencePiece pulls them one by
 * one. The sample is spread evenly over them, and the same each time.
 */
class Sentences : public sentencepiece::SentenceIterator
{
  public:
    /* threads: those that will work on the sentences when all are there; 0: none. */
    Sentences(const char *const *paths, int n, sample part, int threads)
        : paths_(paths), n_(n), part_(part), threads_(threads)
    {
        Next();
    }
    ~Sentences() override
    {
        input_free(in_);
    }
    bool done() const override
    {
        return done_;
    }
    const std::string &value() const override
    {
        return value_;
    }
    void Next() override
    {
        while (!(done_ = !read())) {
            int64_t i = seen_++;
            if ((i + 1) * part_.keep / part_.total > i * part_.keep / part_.total) {
                bytes_ += normalized_bytes(value_);
                return;
            }
        }
        if (threads_ > 0 && !failed_ && !threads_fit(threads_, bytes_))
            failed_ =
                error_set(&error_, HEED_ENOMEM,
                          "out of memory: %zu bytes for the sentences of a vocabulary", bytes_);
    }
    /* Ends the training where a file cannot be read or memory is short; the caller looks at
     * failed() first. */
    sentencepiece::util::Status status() const override
    {
        if (!failed_) return sentencepiece::util::Status();
        return sentencepiece::util::Status(sentencepiece::util::StatusCode::kUnavailable, "");
    }
    /* How many were too long to be sentences. */
    int64_t longer() const
    {
        return longer_;
    }
    enum heed_status failed(struct heed_error *err) const
    {
        if (failed_ && err) *err = error_;
        return failed_;
    }

  private:
    /* The next sentence into value_; false at the end of the last file or on an error. */
    bool read()
    {
        for (;;) {
            while (!line_) {
                if (!line_next()) return false;
            }
            const char *tab = static_cast<const char *>(memchr(line_, '\t', left_));
            size_t len = tab ? size_t(tab - line_) : left_;
            const char *field = line_;
            line_ = tab ? tab + 1 : nullptr;
            left_ -= tab ? len + 1 : len;
            longer_ += len > TRAIN_SENTENCE_BYTES;
            if (len == 0 || len > TRAIN_SENTENCE_BYTES) continue;
            value_ = well_formed(field, len);
            return true;
        }
    }
    bool line_next()
    {
        if (!in_) {
            if (file_ == n_) return false;
            failed_ = input_open(&in_, paths_[file_], &error_);
            if (failed_) return false;
        }
        failed_ = input_line(in_, &line_, &left_, &error_);
        if (failed_) return false;
        if (!line_) {
            input_free(in_);
            in_ = nullptr;
            file_++;
        }
        return true;
    }

    const char *const *paths_;
    int n_;
    sample part_;
    int threads_;
    size_t bytes_ = 0; /* of the sentences so far, as SentencePiece will write them */
    int64_t seen_ = 0, longer_ = 0;
    int file_ = 0;
    struct input *in_ = nullptr;
    const char *line_ = nullptr; /* what is left of the line, in the memory of in_ */
    size_t left_ = 0;
    std::string value_;
    bool done_ = false;
    enum heed_status failed_ = HEED_OK;
    struct heed_error error_ = {};
};

/* What one reading of everything tells. */
struct survey {
    int64_t sentences = 0, unspaced_bytes = 0, characters = 0;
    size_t bytes = 0;                            /* as SentencePiece writes them */
    std::unordered_map<uint32_t, int64_t> times; /* of each character, named by its bytes */
};

void survey_add(survey *s, const std::string &sentence)
{
    s->sentences++;
    s->bytes += normalized_bytes(sentence);
    s->unspaced_bytes += int64_t(unspaced(sentence));
    for (size_t at = 0, n; at < sentence.size(); at += n) {
        n = utf8_char(&sentence[at], sentence.size() - at);
        uint32_t name = 0;
        memcpy(&name, &sentence[at], n);
        s->times[name]++;
        s->characters++;
    }
}

enum heed_status survey_make(survey *s, const char *const *paths, int n, struct heed_error *err)
{
    Sentences all(paths, n, {1, 1}, 0);
    for (; !all.done(); all.Next()) survey_add(s, all.value());
    if (all.failed(err)) return all.failed(err);
    const char *others = n > 1 ? " and the files after it" : "";
    if (s->sentences == 0 && all.longer() > 0)
        return error_set(err, HEED_EFORMAT,
                         "%s%s: no sentence to train a vocabulary on: %lld line%s longer than %zu "
                         "bytes",
                         paths[0], others, static_cast<long long>(all.longer()),
                         all.longer() == 1 ? " is" : "s are", TRAIN_SENTENCE_BYTES);
    if (s->sentences == 0)
        return error_set(err, HEED_EFORMAT, "%s%s: no sentence to train a vocabulary on", paths[0],
                         others);
    return HEED_OK;
}

sample sample_choose(const survey &s)
{
    double part = 1;
    if (s.sentences > TRAIN_SENTENCES) part = double(TRAIN_SENTENCES) / double(s.sentences);
    if (s.unspaced_bytes > TRAIN_UNSPACED_BYTES)
        part = std::min(part, double(TRAIN_UNSPACED_BYTES) / double(s.unspaced_bytes));
    return {std::max(int64_t(double(s.sentences) * part), int64_t(1)), s.sentences};
}

/* The part of the text that is written in characters which get a piece of their own; they take at
 * most half of the pieces there are to learn. SentencePiece accepts no less than 0.98. It reads the
 * number with a stream, which follows the locale of a C++ program; a whole number and an exponent
 * are the same in every locale. */
std::string coverage_choose(const survey &s, int pieces)
{
    std::vector<int64_t> times;
    for (const auto &c : s.times)
        if (c.second >= 2 && c.second >= s.characters / RARE_CHARACTER) times.push_back(c.second);
    std::sort(times.begin(), times.end(), std::greater<int64_t>());
    if (times.size() > size_t(pieces / 2)) times.resize(size_t(pieces / 2));
    int64_t covered = 0;
    for (int64_t n : times) covered += n;
    double part = std::max(double(covered) / double(s.characters), 0.98);
    return std::to_string(std::llround(part * 1e9)) + "e-9";
}

/* NULL, or why a text cannot be a tag: how SentencePiece writes a byte, a space or an unknown
 * character, or what would end or split the list of tags. */
const char *tag_fault(std::string_view tag)
{
    if (tag.empty()) return "it is empty";
    if (!utf8_valid(tag.data(), tag.size())) return "it is not UTF-8";
    for (unsigned char c : tag)
        if (c <= ' ' || c == 0x7f || c == ',' || c == '"')
            return "a tag is UTF-8 without spaces, control characters, commas and quotes";
    if (tag.find("\u2581") != tag.npos || tag.find("\u2585") != tag.npos)
        return "U+2581 and U+2585 have a meaning of their own in a vocabulary";
    if (tag.size() == 6 && tag.substr(0, 3) == "<0x" && tag[5] == '>' && isxdigit(tag[3]) &&
        isxdigit(tag[4]))
        return "it is how a vocabulary writes a byte";
    for (const char *mark : {"<unk>", "<s>", "</s>"})
        if (tag == mark) return "it is a mark that is there anyway";
    return nullptr;
}

enum heed_status tag_check(const struct heed_tokenizer_options *o, int i, struct heed_error *err)
{
    std::string_view tag = o->tags[i];
    if (tag.size() > TAG_BYTES_MAX)
        return error_set(err, HEED_EARG, "a tag has %zu bytes, expected at most %zu", tag.size(),
                         TAG_BYTES_MAX);
    if (const char *why = tag_fault(tag))
        return error_set(err, HEED_EARG, "tag \"%s\" is not usable: %s", o->tags[i], why);
    int begins = 0;
    for (int j = 0; j < o->tags_n; j++) {
        std::string_view other = o->tags[j];
        if (j < i && other == tag)
            return error_set(err, HEED_EARG, "tag \"%s\" is given twice", o->tags[i]);
        begins += j != i && tag.substr(0, other.size()) == other;
    }
    if (begins > TAGS_INSIDE_MAX)
        return error_set(err, HEED_EARG, "tag \"%s\" begins with %d others, expected at most %d",
                         o->tags[i], begins, TAGS_INSIDE_MAX);
    return HEED_OK;
}

/* The tags as SentencePiece wants them: in one string with commas between. */
enum heed_status tags_join(const struct heed_tokenizer_options *o, std::string *out,
                           struct heed_error *err)
{
    for (int i = 0; i < o->tags_n; i++) {
        enum heed_status st = tag_check(o, i, err);
        if (st) return st;
        *out += (i ? "," : "") + std::string(o->tags[i]);
    }
    return HEED_OK;
}

/* The number behind `words` in text, or -1. */
long number_behind(const std::string &text, const char *words)
{
    size_t at = text.find(words);
    return at == std::string::npos ? -1 : strtol(text.c_str() + at + strlen(words), nullptr, 10);
}

enum heed_status train_error(const sentencepiece::util::Status &status, int vocab_size,
                             struct heed_error *err)
{
    std::string words = words_of(status);
    long most = number_behind(words, "value <= "), least = number_behind(words, " vs ");
    if (most > 0)
        return error_set(err, HEED_EARG,
                         "a vocabulary of %d pieces is too large for this text: %ld is the most "
                         "it yields",
                         vocab_size, most);
    if (least > 0)
        return error_set(err, HEED_EARG,
                         "a vocabulary of %d pieces is too small for this text: its characters, "
                         "the bytes, marks and tags are %ld",
                         vocab_size, least);
    return error_set(err, HEED_EFORMAT, "SentencePiece cannot train a vocabulary: %s",
                     words.c_str());
}

enum heed_status train(const char *const *paths, int n, const struct heed_tokenizer_options *o,
                       std::string *model, struct heed_error *err)
{
    std::string tags;
    survey all;
    enum heed_status st = tags_join(o, &tags, err);
    if (!st) st = survey_make(&all, paths, n, err);
    if (st) return st;
    sample part = sample_choose(all);
    /* The sentences themselves, and then once more. */
    size_t bytes = size_t(2 * double(all.bytes) * double(part.keep) / double(part.total));
    int threads = threads_fit(TRAIN_THREADS, bytes) ? TRAIN_THREADS : 1;
    Sentences sentences(paths, n, part, threads);
    std::unordered_map<std::string, std::string> args = {
        {"model_type", "bpe"},
        {"vocab_size", std::to_string(o->vocab_size)},
        {"character_coverage",
         coverage_choose(all, o->vocab_size - MARKS - BYTE_PIECES - o->tags_n)},
        {"byte_fallback", "true"},
        {"normalization_rule_name", "identity"},
        {"remove_extra_whitespaces", "false"},
        {"max_sentence_length", std::to_string(3 * TRAIN_SENTENCE_BYTES)}, /* U+FFFD is three */
        {"unk_id", "0"},
        {"bos_id", "1"},
        {"eos_id", "2"},
        {"pad_id", "-1"},
        {"minloglevel", "4"}, /* above the highest: it never prints */
    };
    if (threads != TRAIN_THREADS) args["num_threads"] = std::to_string(threads);
    if (o->tags_n > 0) args["user_defined_symbols"] = tags;
    auto status = sentencepiece::SentencePieceTrainer::Train(args, &sentences, model);
    if ((st = sentences.failed(err))) return st;
    if (!status.ok()) return train_error(status, o->vocab_size, err);
    model->resize(spm_forget_threads(&(*model)[0], model->size()));
    return HEED_OK;
}

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
        if (spm_is_language(piece.data(), piece.size())) t->languages.push_back(piece);
    }
    int bytes = 0;
    for (int i = 0; i < t->size; i++) bytes += t->processor.IsByte(i);
    t->knows_bytes = bytes == BYTE_PIECES && traits.coverage < COVERAGE_OF_ALL;
    for (int i = 0; i < t->size; i++)
        t->unspelled.push_back(t->processor.IsUnknown(i) ||
                               (t->processor.IsByte(i) && !t->knows_bytes));
    /* One space is two empty words; the mark put in front of a text makes the first. */
    status = t->processor.Encode(" ", &t->gap);
    t->words_alone = t->words_alone && status.ok() && t->gap.size() % 2 == 0;
    t->gap.resize(t->gap.size() / 2);
    return HEED_OK;
}

/* Before the work begins: the vocabulary has a place to go, which is none of the texts. */
enum heed_status output_check(const char *const *paths, int n, const char *out,
                              struct heed_error *err)
{
    for (int i = 0; i < n; i++)
        if (file_is_same(paths[i], out))
            return error_set(err, HEED_EARG,
                             "%s is a text to train on, expected another file for the vocabulary",
                             out);
    return file_check_write(out, err);
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

/* The length of the tag that a text begins with; 0: none. */
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

/* A stretch of a text and how it is encoded. */
struct stretch {
    const sentencepiece::SentencePieceProcessor *processor;
    size_t at, len;
};

/* Appends a stretch, or several: where words stand alone, a long one is cut at spaces, since
 * SentencePiece takes a hundred bytes of memory for each of a text. */
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

/* The stretches of a text to translate, without the spaces between, which every stretch gets at its
 * front. Most texts are one; a tag that is obeyed parts from tags that are not. */
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

/* Well formed, with a space for white space: byte for byte where it was well formed. */
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
    if (out->cap - out->n < n) {
        size_t cap = 2 * (out->n + n);
        void *v = realloc(out->v, cap * sizeof *out->v);
        if (!v) return error_memory(err, cap * sizeof *out->v, "the ids of a text");
        out->v = static_cast<int32_t *>(v);
        out->cap = cap;
    }
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
        /* The word last: without memory for the others it is not remembered at all. */
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

/* The ends of text's pieces, `offset` later each, in end[*at] and behind, as far as n. */
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

enum heed_status heed_tokenizer_train(const char *const *paths, int n,
                                      const struct heed_tokenizer_options *o, const char *out_path,
                                      struct heed_error *err)
{
    if (!o) return error_null(err, "options");
    if (!out_path) return error_null(err, "out_path");
    enum heed_status wrong = error_strings(err, "paths", paths, n);
    if (!wrong && n == 0) wrong = error_set(err, HEED_EARG, "no file to train a vocabulary on");
    if (!wrong && o->tags_n > PIECES_MAX)
        wrong =
            error_set(err, HEED_EARG, "tags are %d, expected at most %d", o->tags_n, PIECES_MAX);
    if (!wrong) wrong = error_strings(err, "tags", o->tags, o->tags_n);
    if (wrong) return wrong;
    int least = MARKS + BYTE_PIECES + o->tags_n + 1;
    if (o->vocab_size < least)
        return error_set(err, HEED_EARG,
                         "a vocabulary of %d pieces is too small: %d marks, %d bytes, %d tags and "
                         "one character are %d",
                         o->vocab_size, MARKS, BYTE_PIECES, o->tags_n, least);
    if (o->vocab_size > PIECES_MAX)
        return error_set(err, HEED_EARG, "a vocabulary of %d pieces is too large: %d is the most",
                         o->vocab_size, PIECES_MAX);
    if ((wrong = output_check(paths, n, out_path, err))) return wrong;
    return guarded("training a vocabulary", err, [&] {
        std::string model;
        enum heed_status st = train(paths, n, o, &model, err);
        heed_tokenizer usable; /* nothing is written that cannot be loaded */
        if (!st) st = parse(model.data(), model.size(), "the trained vocabulary", &usable, err);
        if (st) return st;
        struct file_part part = {model.data(), model.size()};
        return file_write(out_path, &part, 1, err);
    });
}

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
