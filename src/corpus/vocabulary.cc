/*
 * vocabulary.cc - trains a vocabulary on raw text, with SentencePiece.
 *
 * The vocabularies trained here are lossless: BPE with byte fallback over text that is not
 * normalized, so decode(encode(x)) == x for every well-formed text without U+2581, the sign
 * SentencePiece writes for a space.
 */
#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "base/utf8.h"
#include "corpus/input.h"
#include "tokens/sentencepiece.hh"
#include "tokens/spm.h"
#include "tokens/tokenizer.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <pthread.h>
#include <sentencepiece_trainer.h>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unordered_map>
#include <vector>

namespace
{

/* SentencePiece's trainer holds the sentences in memory. It stores each distinct word once; but in
 * a language without spaces each sentence is a word of its own, which costs 60 bytes of memory and
 * 10 microseconds per byte. From a larger corpus a sample within both limits is taken. */
constexpr int64_t TRAIN_SENTENCES = 2000000, TRAIN_UNSPACED_BYTES = 8 << 20;
constexpr size_t UNSPACED_BYTES = 64; /* a longer run of bytes without a space is no word */
/* Longer lines are left out; SentencePiece would skip them by itself. */
constexpr size_t TRAIN_SENTENCE_BYTES = 4192;
/* A character gets a piece of its own if it occurs at least twice, and at least once in this many
 * characters. Other characters are written as bytes. */
constexpr int64_t RARE_CHARACTER = 10000000;
constexpr int MARKS = 3; /* unknown, begin, end */
constexpr int PIECES_MAX = 1 << 20;
/* SentencePiece recurses over the bytes of a tag, and has room for 64 tags that are prefixes of one
 * text. */
constexpr size_t TAG_BYTES_MAX = 256;
constexpr int TAGS_INSIDE_MAX = 32;

/* Bytes of a sentence that are in runs without a space too long to be words. */
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

/* The text to train on: the lines of files, or lines that were drawn from them. */
struct source {
    const char *const *paths;
    int n;
    const std::vector<std::string> *drawn; /* NULL: all lines of the files */
};

/* How many of the `total` sentences of a corpus are used. */
struct sample {
    int64_t keep, total;
};

/*
 * SentencePiece normalizes the sentences in threads of its own, where a bad_alloc would end the
 * program. So they are started only where there is the memory that they will need: each thread
 * takes a stack, a malloc arena, for which glibc first reserves 128 MB of addresses, and some
 * scratch memory, and all together store the sentences a second time. SentencePiece is told how
 * many threads to start: its default number, or one where memory is short.
 */
constexpr int TRAIN_THREADS = 16;
constexpr size_t THREAD_HEAP = size_t(128) << 20, THREAD_SCRATCH = size_t(1) << 20;

/* Memory that a sentence takes once SentencePiece has normalized it. */
size_t normalized_bytes(const std::string &sentence)
{
    constexpr size_t SPACE = 3;   /* bytes of U+2581, which replaces a space */
    constexpr size_t STRING = 48; /* what a std::string takes besides its text */
    return sentence.size() + STRING +
           SPACE * (1 + std::count(sentence.begin(), sentence.end(), ' '));
}

/* Whether so many threads can be started, with `bytes` of memory for their sentences. */
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
 * The sentences of the files, from which SentencePiece pulls one after another. A sentence is a
 * line or a field of a line with tabs. The sample is spread evenly over all sentences, and the same
 * each time.
 */
class Sentences : public sentencepiece::SentenceIterator
{
  public:
    /* threads: how many SentencePiece will start when it has all sentences; 0: it starts none. */
    Sentences(const source &from, sample part, int threads)
        : from_(from), part_(part), threads_(threads)
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
    /* How many lines and fields were longer than TRAIN_SENTENCE_BYTES. */
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
    /* Reads the next sentence into value_; false at the end of the last file or on an error. */
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
        if (from_.drawn) {
            if (at_ == from_.drawn->size()) return false;
            line_ = (*from_.drawn)[at_].data();
            left_ = (*from_.drawn)[at_++].size();
            return true;
        }
        if (!in_) {
            if (file_ == from_.n) return false;
            failed_ = input_open(&in_, from_.paths[file_], &error_);
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

    source from_;
    sample part_;
    int threads_;
    size_t bytes_ = 0; /* normalized_bytes of the sentences so far */
    int64_t seen_ = 0, longer_ = 0;
    int file_ = 0;
    size_t at_ = 0; /* the next of the lines that were drawn */
    struct heed_lines *in_ = nullptr;
    const char *line_ = nullptr; /* the rest of the line being read, in memory of in_ or from_ */
    size_t left_ = 0;
    std::string value_;
    bool done_ = false;
    enum heed_status failed_ = HEED_OK;
    struct heed_error error_ = {};
};

/* Statistics of all sentences, from a first reading of the corpus. */
struct survey {
    int64_t sentences = 0, unspaced_bytes = 0, characters = 0;
    size_t bytes = 0;                            /* normalized_bytes of all sentences */
    std::unordered_map<uint32_t, int64_t> times; /* of each character; the key is its UTF-8 bytes */
};

void survey_add(survey *s, const std::string &sentence)
{
    s->sentences++;
    s->bytes += normalized_bytes(sentence);
    s->unspaced_bytes += int64_t(unspaced(sentence));
    for (size_t at = 0, n; at < sentence.size(); at += n) {
        n = utf8_char(&sentence[at], sentence.size() - at);
        uint32_t bytes = 0;
        memcpy(&bytes, &sentence[at], n);
        s->times[bytes]++;
        s->characters++;
    }
}

enum heed_status survey_make(survey *s, const source &from, struct heed_error *err)
{
    const char *const *paths = from.paths;
    int n = from.n;
    Sentences all(from, {1, 1}, 0);
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

/* SentencePiece's character_coverage: the part of the characters of the text that get a piece of
 * their own. These characters take at most half of the pieces to be learned. SentencePiece accepts
 * no less than 0.98. It parses the number with a stream, which follows the locale of a C++ program;
 * an integer with an exponent is the same in every locale. */
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

/* NULL where the tag is usable, else why it is not: SentencePiece writes a byte, a space, an
 * unknown character or a mark that way, or it would end or split the list of tags. */
const char *tag_fault(std::string_view tag)
{
    if (tag.empty()) return "it is empty";
    if (!utf8_valid(tag.data(), tag.size())) return "it is not UTF-8";
    for (unsigned char c : tag)
        if (c <= ' ' || c == 0x7f || c == ',' || c == '"')
            return "a tag is UTF-8 without spaces, control characters, commas and quotes";
    if (tag.find(SPM_SPACE) != tag.npos || tag.find("\u2585") != tag.npos)
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

/* The tags in the form of SentencePiece's option: one string, separated by commas. */
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

/* The number that follows `words` in text, or -1. */
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
        return error_set(
            err, HEED_EARG,
            "a vocabulary of %d pieces is too small for this text: its characters, the "
            "bytes, marks and tags need %ld",
            vocab_size, least);
    return error_set(err, HEED_EFORMAT, "SentencePiece cannot train a vocabulary: %s",
                     words.c_str());
}

/* Draws o->sample lines of the files in one pass: the i-th line takes the place of one that was
 * drawn before with a probability of sample / i (reservoir sampling). */
enum heed_status lines_draw(const char *const *paths, int n, const struct heed_tokenizer_options *o,
                            std::vector<std::string> *out, struct heed_error *err)
{
    uint64_t random = o->seed, seen = 0;
    enum heed_status st = HEED_OK;
    for (int i = 0; i < n && !st; i++) {
        struct heed_lines *opened = nullptr;
        if ((st = input_open(&opened, paths[i], err))) break;
        std::unique_ptr<struct heed_lines, void (*)(struct heed_lines *)> in(opened, input_free);
        const char *line;
        size_t len;
        while (!(st = input_line(opened, &line, &len, err)) && line) {
            if (seen++ < uint64_t(o->sample)) {
                out->emplace_back(line, len);
                continue;
            }
            uint64_t place = random_below(&random, seen);
            if (place < uint64_t(o->sample)) (*out)[place].assign(line, len);
        }
    }
    return st;
}

enum heed_status train(const char *const *paths, int n, const struct heed_tokenizer_options *o,
                       std::string *model, struct heed_error *err)
{
    std::string tags;
    std::vector<std::string> drawn;
    source from = {paths, n, o->sample ? &drawn : nullptr};
    survey all;
    enum heed_status st = tags_join(o, &tags, err);
    if (!st && o->sample) st = lines_draw(paths, n, o, &drawn, err);
    if (!st) st = survey_make(&all, from, err);
    if (st) return st;
    sample part = sample_choose(all);
    /* SentencePiece stores the sentences twice: as they are and normalized. */
    size_t bytes = size_t(2 * double(all.bytes) * double(part.keep) / double(part.total));
    int threads = threads_fit(TRAIN_THREADS, bytes) ? TRAIN_THREADS : 1;
    Sentences sentences(from, part, threads);
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

/* Checks before the work begins that the vocabulary can be written to `out`, and that this is none
 * of the texts. */
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
        wrong = error_set(err, HEED_EARG, "there are %d tags, expected at most %d", o->tags_n,
                          PIECES_MAX);
    if (!wrong) wrong = error_strings(err, "tags", o->tags, o->tags_n);
    if (wrong) return wrong;
    int least = MARKS + BYTE_PIECES + o->tags_n + 1;
    if (o->vocab_size < least)
        return error_set(err, HEED_EARG,
                         "a vocabulary of %d pieces is too small: %d marks, %d bytes, %d tags and "
                         "one character need %d",
                         o->vocab_size, MARKS, BYTE_PIECES, o->tags_n, least);
    if (o->vocab_size > PIECES_MAX)
        return error_set(err, HEED_EARG, "a vocabulary of %d pieces is too large: %d is the most",
                         o->vocab_size, PIECES_MAX);
    if (o->sample < 0)
        return error_set(err, HEED_EARG,
                         "the sample has %lld lines, expected at least 1, or 0 for "
                         "all",
                         static_cast<long long>(o->sample));
    if ((wrong = output_check(paths, n, out_path, err))) return wrong;
    return guarded("training a vocabulary", err, [&] {
        std::string model;
        struct heed_error why = {};
        enum heed_status st = train(paths, n, o, &model, err);
        if (st) return st;
        /* A vocabulary that could not be loaded is not written. */
        heed_tokenizer *usable =
            tokenizer_parse(model.data(), model.size(), "the trained vocabulary", &why);
        if (!usable) return error_set(err, why.status, "%s", why.text);
        heed_tokenizer_free(usable);
        struct file_part part = {model.data(), model.size()};
        return file_write(out_path, &part, 1, err);
    });
}
