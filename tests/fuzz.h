/*
 * fuzz.h - shared by the fuzzers: a file in memory, the check of every failing call, and the seeds
 * and the dictionary that a fuzzer writes when it starts.
 *
 * A fuzzer keeps its corpus in PROGRAM.corpus beside the program. Its own seeds are put there at
 * each start, so no corpus has to be kept in the repository, and a second run goes on from the
 * coverage of the first.
 */
#ifndef HEED_TESTS_FUZZ_H
#define HEED_TESTS_FUZZ_H
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "heed.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most); /* defined by libFuzzer */

/* Ends the program for a finding that no sanitizer reports. */
static inline void must(bool good, const char *what)
{
    if (good) return;
    fprintf(stderr, "finding: not so: %s\n", what);
    abort();
}

/* Checks what a failing call returned: the same status in the error, and one sentence that begins
 * with the name of the file and has no control characters, such as line ends. */
static inline void must_explain(enum heed_status status, const struct heed_error *err)
{
    must(status != HEED_OK && err->status == status, "the error has the status of the call");
    must(err->text[0] != '\0', "an error has a sentence");
    for (const char *c = err->text; *c; c++)
        must((unsigned char)*c >= ' ' && *c != 0x7f, "a sentence has no control characters");
}

/* ---- a file in memory ---- */

struct fuzz_file {
    int fd; /* 0: not made yet */
    char path[40];
};

/* Replaces the content of the file. */
static inline const char *fuzz_file_put(struct fuzz_file *f, const void *data, size_t size)
{
    if (!f->fd) {
        f->fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(f->path, sizeof f->path, "/proc/self/fd/%d", f->fd);
    }
    if (f->fd < 0 || ftruncate(f->fd, 0) != 0 || pwrite(f->fd, data, size, 0) != (ssize_t)size)
        abort();
    return f->path;
}

/* The descriptor that the next open file would get. If it differs before and after a call, a file
 * was left open. */
static inline int fuzz_next_fd(void)
{
    int fd = dup(STDERR_FILENO);
    if (fd < 0) abort();
    close(fd);
    return fd;
}

/* ---- seeds ---- */

static inline void fuzz_write(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0) abort();
}

static char fuzz_corpus[PATH_MAX];

/* Writes a seed under a name of its own. */
static inline void fuzz_seed(const char *name, const void *data, size_t size)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/seed-%s", fuzz_corpus, name);
    fuzz_write(path, data, size);
}

/* Writes the words as a dictionary of libFuzzer. */
static inline void fuzz_words(const char *path, const char *const *word)
{
    FILE *f = fopen(path, "w");
    if (!f) abort();
    for (; *word; word++) {
        fputc('"', f);
        for (const char *c = *word; *c; c++) fprintf(f, "\\x%02x", (unsigned char)*c);
        fputs("\"\n", f);
    }
    if (fclose(f) != 0) abort();
}

/* Adds the corpus, the dictionary (words, or NULL) and the limits to the command line. Returns
 * false where the user has named files, which are run once each and nothing else. Call this first,
 * then fuzz_seed. */
static inline bool fuzz_begin(int *argc, char ***argv, const char *const *word)
{
    static char dictionary[PATH_MAX + 8], *args[64];
    int n = *argc;
    for (int i = 1; i < n; i++)
        if ((*argv)[i][0] != '-') return false;
    if (n > 60) abort();
    memcpy(args, *argv, (size_t)n * sizeof *args);
    snprintf(fuzz_corpus, sizeof fuzz_corpus, "%s.corpus", args[0]);
    mkdir(fuzz_corpus, 0777);
    args[n++] = fuzz_corpus;
    if (word) {
        snprintf(dictionary, sizeof dictionary, "-dict=%s.dict", args[0]);
        fuzz_words(dictionary + strlen("-dict="), word);
        args[n++] = dictionary;
    }
    *argc = n;
    *argv = args;
    return true;
}

/* ---- a vocabulary ---- */

/* A vocabulary as heed trains them, with two tags. */
static inline struct heed_tokenizer *fuzz_tokenizer(void)
{
    static const char text[] =
        "the dog runs\tder Hund l\xc3\xa4uft\nthe cat and the dog\tdie Katze "
        "und der Hund\nno cat runs there\tda l\xc3\xa4uft keine Katze\n";
    char folder[] = "/tmp/heed-fuzz-XXXXXX", in[64], out[64];
    struct heed_error err = {0};
    struct heed_tokenizer_options o = {
        .vocab_size = 290, .tags = (const char *[]){">>de<<", ">>fr<<"}, .tags_n = 2};
    if (!mkdtemp(folder)) abort();
    snprintf(in, sizeof in, "%s/text", folder);
    snprintf(out, sizeof out, "%s/vocab.model", folder);
    fuzz_write(in, text, strlen(text));
    must(!heed_tokenizer_train((const char *[]){in}, 1, &o, out, &err), err.text);
    struct heed_tokenizer *t = heed_tokenizer_load(out, &err);
    must(t, err.text);
    unlink(in);
    unlink(out);
    rmdir(folder);
    return t;
}

#endif
