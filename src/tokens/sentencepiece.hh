/*
 * sentencepiece.hh - helpers for the callers of SentencePiece: its exceptions and messages become
 * errors of heed, and the text that it is given is valid UTF-8.
 *
 * SentencePiece is C++. It is called from tokens/tokenizer.cc, which reads and applies a
 * vocabulary, and from corpus/vocabulary.cc, which trains one; no exception may leave these two
 * files.
 */
#ifndef HEED_TOKENS_SENTENCEPIECE_HH
#define HEED_TOKENS_SENTENCEPIECE_HH
#include "base/error.h"
#include "base/utf8.h"

#include <cstring>
#include <exception>
#include <new>
#include <sentencepiece_processor.h>
#include <string>
#include <system_error>

constexpr int BYTE_PIECES = 256; /* a piece for each value of a byte, <0x00> to <0xFF> */

/* Runs body, which returns a status. An exception becomes an error, in which `what` names the work.
 */
template <class Body> enum heed_status guarded(const char *what, struct heed_error *err, Body body)
{
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return error_set(err, HEED_ENOMEM, "out of memory: %s", what);
    } catch (const std::system_error &e) {
        return error_set(err, HEED_ENOMEM, "%s: cannot start a thread: %s", what, e.what());
    } catch (const std::exception &e) {
        if (strstr(e.what(), "bad_alloc")) /* a message of a library that SentencePiece uses */
            return error_set(err, HEED_ENOMEM, "out of memory: %s", what);
        return error_set(err, HEED_EFORMAT, "%s: SentencePiece failed: %s", what, e.what());
    } catch (...) {
        return error_set(err, HEED_EFORMAT, "%s: SentencePiece failed", what);
    }
}

/* The text with U+FFFD in place of each byte that is not part of valid UTF-8. */
inline std::string well_formed(const char *text, size_t len)
{
    std::string out(3 * len, '\0');
    out.resize(utf8_mend(&out[0], text, len));
    return out;
}

/* The message of SentencePiece without the source file, line and condition in front of it; only the
 * condition, where there is no message behind it. */
inline std::string words_of(const sentencepiece::util::Status &status)
{
    std::string text = status.ToString();
    size_t at = text.rfind("] ");
    return at == std::string::npos || at + 2 == text.size() ? text : text.substr(at + 2);
}

#endif
