/*
 * test_tokenizer.c - text survives encoding and decoding; training gives the same vocabulary each
 * time; a file that is no vocabulary is an error; nothing is ever printed.
 */
#include "text_files.h"

#include "corpus/input.h"
#include "tokens/subword.h"
#include "tokens/tokenizer.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { VOCAB = 360 };
static const char *const tags[] = {">>de<<", ">>zh<<"};

/* A small corpus of words with common parts, with umlauts and Chinese. */
static char *corpus(char between)
{
    static const char *const word[] = {"der",    "große",  "Hund",   "rennt",   "running",
                                       "runner", "the",    "dog",    "hundert", "schöne",
                                       "grüne",  "一只狗", "在跑步", "他们"};
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    uint32_t x = 7;
    for (int i = 0; i < 1200; i++) {
        for (int k = 0; k < 6; k++) {
            x = x * 1664525u + 1013904223u;
            fprintf(f, "%s%s", k ? " " : "", word[(x >> 16) % 14]);
        }
        fputc(i % 2 ? '\n' : between, f);
    }
    fclose(f);
    return text;
}

static enum heed_status train(const char *path, int vocab, const char *out, struct heed_error *err)
{
    struct heed_tokenizer_options o = {.vocab_size = vocab, .tags = tags, .tags_n = 2};
    return heed_tokenizer_train(&path, 1, &o, out, err);
}

static int setup(void **state)
{
    if (folder_make(state)) return -1;
    char *text = corpus('\n');
    put_text("corpus", text);
    free(text);
    struct heed_error err = {0};
    enum heed_status st = train(at("corpus"), VOCAB, at("model"), &err);
    if (st) print_error("%s\n", err.text);
    return st ? -1 : 0;
}

static struct heed_tokenizer *load(void)
{
    struct heed_error err = {0};
    struct heed_tokenizer *t = heed_tokenizer_load(at("model"), &err);
    if (!t) fail_msg("%s", err.text);
    return t;
}

/* The caller frees the result. */
static char *file_bytes(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *data = malloc(1 << 20);
    *len = fread(data, 1, 1 << 20, f);
    fclose(f);
    return data;
}

/* Everything that turns text into ids. */
enum { RATES = 10 };
struct coders {
    struct heed_tokenizer *t;
    struct encoder *e;
    struct subword *s[RATES]; /* of the rates 0, 0.1, ... */
};

static struct subword *subword(const struct heed_tokenizer *t, float rate)
{
    struct subword *s;
    struct heed_error err = {0};
    if (subword_new(&s, t, rate, &err)) fail_msg("%s", err.text);
    return s;
}

static struct coders coders_load(void)
{
    struct coders c = {.t = load()};
    c.e = encoder_new(c.t, NULL);
    for (int i = 0; i < RATES; i++) c.s[i] = subword(c.t, (float)i / RATES);
    return c;
}

static void coders_release(struct coders *c)
{
    for (int i = 0; i < RATES; i++) subword_free(c->s[i]);
    encoder_free(c->e);
    heed_tokenizer_free(c->t);
}

static void check_decodes(const struct heed_tokenizer *t, const struct heed_ids *ids,
                          const char *text, size_t len)
{
    char *back;
    size_t back_len;
    assert_int_equal(heed_decode(t, ids->v, ids->n, &back, &back_len, NULL), HEED_OK);
    assert_int_equal(back_len, len);
    assert_memory_equal(back, text, len + 1);
    free(back);
}

static void check_same(const struct heed_ids *a, const struct heed_ids *b)
{
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++) assert_int_equal(a->v[i], b->v[i]);
}

static void check_round_trip(const struct coders *c, const char *text, size_t len)
{
    struct heed_ids ids = {0}, again = {0};
    assert_int_equal(heed_encode(c->t, text, len, &ids, NULL), HEED_OK);
    check_decodes(c->t, &ids, text, len);
    assert_int_equal(encoder_run(c->e, text, len, &again, NULL), HEED_OK);
    check_same(&ids, &again);
    for (int i = 0; i < RATES; i++) {
        again.n = 0;
        assert_int_equal(subword_run(c->s[i], text, len, len, &again, NULL), HEED_OK);
        check_decodes(c->t, &again, text, len);
        if (i == 0) check_same(&ids, &again);
    }
    free(ids.v);
    free(again.v);
}

static void test_vocabulary(void **state)
{
    (void)state;
    struct heed_tokenizer *t = load();
    assert_int_equal(heed_tokenizer_size(t), VOCAB);
    assert_int_equal(tokenizer_bos(t), 1);
    assert_int_equal(tokenizer_eos(t), 2);
    for (int i = 0; i < 2; i++) { /* a tag is one piece wherever it stands */
        struct heed_ids ids = {0};
        char text[64];
        snprintf(text, sizeof text, "%s der Hund", tags[i]);
        assert_int_equal(heed_encode(t, text, strlen(text), &ids, NULL), HEED_OK);
        assert_true(ids.n >= 2);
        assert_int_equal(ids.v[1], 3 + i);
        free(ids.v);
    }
    heed_tokenizer_free(t);
    heed_tokenizer_free(NULL);
}

static void test_round_trip(void **state)
{
    (void)state;
    static const char *const text[] = {
        "",
        " ",
        "   ",
        "a",
        " a",
        "a ",
        "  der  Hund  ",
        "\ta\nb",
        "der Hund",
        "一只狗在跑步",
        "中文 字",
        "龘靐",
        "😀 😀",
        "<s> </s> <unk>",
        "<0x41>",
        ">>de<< der",
        ">>de<<a",
        "der>>zh<<>>de<<Hund >>d >>de<",
        "runningrunningrunnerhundertdogthedogs",
        "e\u0301",
        "\u3000\u00a0",
        "\ufeffder",
        "x \x01\x7f y",
    };
    struct coders c = coders_load();
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < sizeof text / sizeof *text; i++)
            check_round_trip(&c, text[i], strlen(text[i]));
    coders_release(&c);
    encoder_free(NULL);
    subword_free(NULL);
}

static void test_round_trip_of_real_text(void **state)
{
    (void)state;
    static const char *const file[] = {"multi30k/val.en", "multi30k/val.de", "multi30k/val.fr",
                                       "tatoeba/test.enzh.zh"};
    struct coders c = coders_load();
    int lines = 0;
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        char path[128];
        struct heed_lines *in;
        const char *line;
        size_t len;
        snprintf(path, sizeof path, "../shared/data/%s", file[i]);
        if (input_open(&in, path, NULL)) continue;
        while (!input_line(in, &line, &len, NULL) && line) {
            char *copy = strndup(line, len);
            check_round_trip(&c, copy, len);
            free(copy);
            lines++;
        }
        input_free(in);
    }
    coders_release(&c);
    if (lines == 0) {
        print_message("no ../shared/data\n");
        skip();
    }
}

/* More words than an encoder remembers. */
static void test_encoder_forgets(void **state)
{
    (void)state;
    struct heed_tokenizer *t = load();
    struct encoder *e = encoder_new(t, NULL);
    struct heed_ids a = {0}, b = {0};
    for (int i = 0; i < 70000; i++) {
        char text[32];
        int n = snprintf(text, sizeof text, "%x", i);
        a.n = b.n = 0;
        assert_int_equal(encoder_run(e, text, (size_t)n, &a, NULL), HEED_OK);
        if (i % 16 && i < 65530) continue;
        assert_int_equal(heed_encode(t, text, (size_t)n, &b, NULL), HEED_OK);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.v, b.v, a.n * sizeof *a.v);
    }
    free(a.v);
    free(b.v);
    encoder_free(e);
    heed_tokenizer_free(t);
}

/* Subword dropout is a function of the number given, tags stay whole, and as many joins are left
 * out as the rate says. */
static void test_subword_dropout(void **state)
{
    (void)state;
    enum { DRAWS = 2000 };
    static const char text[] = ">>de<< running";
    struct heed_tokenizer *t = load();
    struct subword *s = subword(t, 0.2f), *other = subword(t, 0.2f), *high = subword(t, 0.999f);
    struct heed_ids whole = {0}, a = {0}, b = {0};
    size_t len = strlen(text);
    int uncut = 0, characters = 0;
    assert_int_equal(heed_encode(t, text, len, &whole, NULL), HEED_OK);
    assert_int_equal(whole.n, 3);
    for (uint64_t i = 0; i < DRAWS; i++) {
        a.n = b.n = 0;
        assert_int_equal(subword_run(s, text, len, i, &a, NULL), HEED_OK);
        assert_int_equal(a.v[1], 3);
        uncut += a.n == whole.n;
        if (i % 2) assert_int_equal(subword_run(other, "der", 3, i, &b, NULL), HEED_OK);
        b.n = 0;
        assert_int_equal(subword_run(other, text, len, i, &b, NULL), HEED_OK);
        check_same(&a, &b);
        b.n = 0;
        assert_int_equal(subword_run(high, text, len, i, &b, NULL), HEED_OK);
        characters += b.n == 2 + strlen(" running");
    }
    /* seven joins make "_running" of its characters: 0.8^7, or a little more by other ways */
    assert_in_range(uncut, DRAWS * 15 / 100, DRAWS * 40 / 100);
    assert_in_range(characters, DRAWS * 97 / 100, DRAWS);
    free(whole.v);
    free(a.v);
    free(b.v);
    subword_free(s);
    subword_free(other);
    subword_free(high);
    heed_tokenizer_free(t);
}

static void check_source(const struct heed_tokenizer *t, const char *text, bool tagged,
                         const char *like, int tag)
{
    struct heed_ids ids = {0}, want = {0};
    char *back;
    size_t len, end[64];
    assert_int_equal(tokenizer_encode_source(t, text, strlen(text), tagged, &ids, NULL), HEED_OK);
    if (like) {
        assert_int_equal(heed_encode(t, like, strlen(like), &want, NULL), HEED_OK);
        check_same(&ids, &want);
    }
    int tags_met = 0;
    for (size_t i = 0; i < ids.n; i++) tags_met += ids.v[i] == 3 || ids.v[i] == 4;
    assert_int_equal(tags_met, tag);
    /* nothing is lost, and the ends are those of the text itself */
    assert_int_equal(heed_decode(t, ids.v, ids.n, &back, &len, NULL), HEED_OK);
    assert_in_range(len, strlen(text), strlen(text) + 1); /* a space behind the tag, perhaps */
    assert_int_equal(tokenizer_source_ends(t, text, strlen(text), tagged, end, ids.n, NULL),
                     HEED_OK);
    assert_int_equal(end[ids.n - 1], strlen(text));
    for (size_t i = 1; i < ids.n; i++) assert_true(end[i] >= end[i - 1]);
    free(back);
    free(ids.v);
    free(want.v);
}

/* A text of any length has the ids that it has in one piece. */
static void check_long_source(const struct heed_tokenizer *t, const char *words)
{
    size_t len = 300000, n = strlen(words);
    char *text = malloc(len + 1);
    for (size_t i = 0; i < len; i++) text[i] = words[i % n];
    text[len - 1] = ' '; /* not cut off either */
    struct heed_ids ids = {0}, want = {0};
    assert_int_equal(tokenizer_encode_source(t, text, len, false, &ids, NULL), HEED_OK);
    assert_int_equal(heed_encode(t, text, len, &want, NULL), HEED_OK);
    check_same(&ids, &want);
    size_t *end = malloc(ids.n * sizeof *end);
    assert_int_equal(tokenizer_source_ends(t, text, len, false, end, ids.n, NULL), HEED_OK);
    assert_int_equal(end[ids.n - 1], len);
    for (size_t i = 1; i < ids.n; i++) assert_true(end[i] >= end[i - 1]);
    free(end);
    free(ids.v);
    free(want.v);
    free(text);
}

/* White space is a space; a tag is text, but for one at the front where it may be one. */
static void test_source_text(void **state)
{
    (void)state;
    struct heed_tokenizer *t = load();
    check_source(t, "der\tHund", false, "der Hund", 0);
    check_source(t, "der\vHund\f\r\nrennt", false, "der Hund   rennt", 0);
    check_source(t, "der\u00a0Hund\u3000", false, "der\u00a0Hund\u3000", 0);
    check_source(t, ">>de<< der Hund", true, ">>de<< der Hund", 1);
    check_source(t, ">>de<<\tder Hund", true, ">>de<< der Hund", 1);
    check_source(t, ">>de<<", true, ">>de<<", 1);
    check_source(t, ">>de<< der Hund", false, NULL, 0);
    check_source(t, "der >>de<< Hund", true, NULL, 0);
    check_source(t, "der >>de<< Hund >>zh<<", false, NULL, 0);
    check_source(t, ">>de<< der >>zh<<>>zh<<", true, NULL, 1);
    check_source(t, ">>de<<>>zh<< der", true, NULL, 1);
    check_source(t, ">>xx<< der", true, ">>xx<< der", 0);
    check_source(t, ">>de<", false, ">>de<", 0);
    check_long_source(t, "der Hund rennt  ");
    check_long_source(t, " ");
    check_long_source(t, "x");
    struct heed_ids bad = {0}, good = {0};
    assert_int_equal(tokenizer_encode_source(t, "\xff\t>>de<<", 8, false, &bad, NULL), HEED_OK);
    assert_int_equal(tokenizer_encode_source(t, "\ufffd >>de<<", 10, false, &good, NULL), HEED_OK);
    check_same(&bad, &good);
    free(bad.v);
    free(good.v);
    heed_tokenizer_free(t);
}

static void test_ill_formed_text(void **state)
{
    (void)state;
    struct heed_tokenizer *t = load();
    struct heed_ids a = {0}, b = {0};
    const char bad[] = "a\xff"
                       "b\0c \xc3 \xed\xa0\x80 \xf4\x90\x80\x80 \xe4\xb8";
    const char *good = "a\ufffdb\ufffdc \ufffd \ufffd\ufffd\ufffd \ufffd\ufffd\ufffd\ufffd "
                       "\ufffd\ufffd";
    assert_int_equal(heed_encode(t, bad, sizeof bad - 1, &a, NULL), HEED_OK);
    assert_int_equal(heed_encode(t, good, strlen(good), &b, NULL), HEED_OK);
    check_same(&a, &b);
    struct subword *s = subword(t, 0);
    b.n = 0;
    assert_int_equal(subword_run(s, bad, sizeof bad - 1, 1, &b, NULL), HEED_OK);
    check_same(&a, &b);
    subword_free(s);
    free(a.v);
    free(b.v);
    heed_tokenizer_free(t);
}

static void test_decode_refuses_wrong_ids(void **state)
{
    (void)state;
    struct heed_tokenizer *t = load();
    struct heed_error err = {0};
    char *text = NULL;
    size_t len;
    for (int32_t id = -1; id <= VOCAB; id += VOCAB + 1) {
        assert_int_equal(heed_decode(t, &id, 1, &text, &len, &err), HEED_EARG);
        assert_non_null(strstr(err.text, "360"));
        assert_null(text);
    }
    int32_t marks[] = {1, 2};
    assert_int_equal(heed_decode(t, marks, 2, &text, &len, &err), HEED_OK);
    assert_string_equal(text, "");
    free(text);
    heed_tokenizer_free(t);
}

/* The same sentences give the same bytes, however they are stored. */
static void test_training_is_deterministic(void **state)
{
    (void)state;
    char *lines = corpus('\n'), *pairs = corpus('\t');
    size_t want_len, got_len, n;
    char *want = file_bytes(at("model"), &want_len);
    unsigned char *gz = gzip_of(lines, strlen(lines), &n);
    put("c.gz", gz, n);
    unsigned char *xz = xz_of(pairs, strlen(pairs), &n);
    put("c.tsv.xz", xz, n);
    static const char *const name[] = {"corpus", "c.gz", "c.tsv.xz"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(train(at(name[i]), VOCAB, at("again"), NULL), HEED_OK);
        char *got = file_bytes(at("again"), &got_len);
        assert_int_equal(got_len, want_len);
        assert_memory_equal(got, want, want_len);
        free(got);
    }
    free(want);
    free(gz);
    free(xz);
    free(lines);
    free(pairs);
}

static void expect_training_error(const char *path, struct heed_tokenizer_options o,
                                  enum heed_status status, const char *words)
{
    struct heed_error err = {0};
    assert_int_equal(heed_tokenizer_train(&path, 1, &o, at("none"), &err), status);
    if (!strstr(err.text, words)) fail_msg("\"%s\" lacks \"%s\"", err.text, words);
    assert_int_not_equal(access(at("none"), F_OK), 0);
}

static void test_training_errors(void **state)
{
    (void)state;
    static const char *const twice[] = {"<x>", "<x>"}, *const space[] = {"a b"},
                             *const mark[] = {"<s>"};
    const char *ok = at("corpus");
    expect_training_error(ok, (struct heed_tokenizer_options){.vocab_size = 50000}, HEED_EARG,
                          "50000 pieces is too large for this text: ");
    expect_training_error(ok, (struct heed_tokenizer_options){.vocab_size = 100}, HEED_EARG,
                          "need 260");
    expect_training_error(ok, (struct heed_tokenizer_options){.vocab_size = 262}, HEED_EARG,
                          "262 pieces is too small for this text");
    expect_training_error(at("missing"), (struct heed_tokenizer_options){.vocab_size = 350},
                          HEED_EIO, "missing");
    expect_training_error(put_text("empty", ""), (struct heed_tokenizer_options){.vocab_size = 350},
                          HEED_EFORMAT, "no sentence");
    char *wide = malloc(5001);
    memset(wide, 'x', 5000);
    wide[5000] = '\0';
    expect_training_error(put_text("wide", wide),
                          (struct heed_tokenizer_options){.vocab_size = 350}, HEED_EFORMAT,
                          "1 line is longer than 4192 bytes");
    free(wide);
    expect_training_error("", (struct heed_tokenizer_options){.vocab_size = 350}, HEED_EIO,
                          "name is empty");
    expect_training_error(
        ok, (struct heed_tokenizer_options){.vocab_size = 350, .tags = twice, .tags_n = 2},
        HEED_EARG, "given twice");
    expect_training_error(
        ok, (struct heed_tokenizer_options){.vocab_size = 350, .tags = space, .tags_n = 1},
        HEED_EARG, "a b");
    expect_training_error(
        ok, (struct heed_tokenizer_options){.vocab_size = 350, .tags = mark, .tags_n = 1},
        HEED_EARG, "<s>");
    static const char *const unusable[] = {"<0x41>", "a\u2581b", "\u2585", "a\x1b[1m",
                                           "a\x7f",  "",         ","};
    for (size_t i = 0; i < sizeof unusable / sizeof unusable[0]; i++)
        expect_training_error(
            ok,
            (struct heed_tokenizer_options){.vocab_size = 350, .tags = &unusable[i], .tags_n = 1},
            HEED_EARG, "is not usable: ");
    char long_tag[5000];
    const char *const long_tags[] = {long_tag};
    memset(long_tag, 'x', sizeof long_tag);
    long_tag[sizeof long_tag - 1] = '\0';
    expect_training_error(
        ok, (struct heed_tokenizer_options){.vocab_size = 350, .tags = long_tags, .tags_n = 1},
        HEED_EARG, "4999 bytes");
    const char *nested[40]; /* "x", "xx", ... */
    for (int i = 0; i < 40; i++) nested[i] = long_tag + sizeof long_tag - 2 - i;
    expect_training_error(
        ok, (struct heed_tokenizer_options){.vocab_size = 350, .tags = nested, .tags_n = 40},
        HEED_EARG, "begins with 33 others");
    size_t n;
    char *text = corpus('\n');
    unsigned char *gz = gzip_of(text, strlen(text), &n);
    expect_training_error(put("cut.gz", gz, n / 2),
                          (struct heed_tokenizer_options){.vocab_size = 350}, HEED_EFORMAT,
                          "truncated");
    free(gz);
    free(text);
}

static void expect_no_output(const char *corpus_path, const char *out, const char *words)
{
    struct heed_error err = {0};
    struct heed_tokenizer_options o = {.vocab_size = 50000}; /* refused after the work is done */
    assert_int_not_equal(heed_tokenizer_train(&corpus_path, 1, &o, out, &err), HEED_OK);
    if (!strstr(err.text, words)) fail_msg("\"%s\" lacks \"%s\"", err.text, words);
}

/* What cannot be written is found before the work begins, and the text is never overwritten. */
static void test_training_output(void **state)
{
    (void)state;
    char *text = corpus('\n');
    size_t n;
    assert_int_equal(symlink(put_text("own", text), at("link")), 0);
    assert_int_equal(link(at("own"), at("hard")), 0);
    expect_no_output(at("own"), at("own"), "own is a text to train on");
    expect_no_output(at("own"), at("link"), "link is a text to train on");
    expect_no_output(at("link"), at("hard"), "hard is a text to train on");
    char *after = file_bytes(at("own"), &n);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(after, text, n);
    free(after);
    free(text);
    expect_no_output(at("corpus"), at("missing/model"), "missing/model: No such file");
    expect_no_output(at("corpus"), at("corpus/model"), "corpus/model: Not a directory");
    expect_no_output(at("corpus"), folder, "not a regular file");
    if (geteuid() != 0) {
        assert_int_equal(mkdir(at("locked"), 0500), 0);
        expect_no_output(at("corpus"), at("locked/model"), "Permission denied");
    }
}

/* A model parsed from bytes that may be anything, used if it loads. */
static bool survive(const char *data, size_t len)
{
    struct heed_error err = {0};
    struct heed_tokenizer *t = tokenizer_parse(data, len, "bytes", &err);
    if (!t) {
        assert_non_null(strstr(err.text, "bytes"));
        return false;
    }
    struct heed_ids ids = {0};
    char *text;
    size_t text_len;
    static char some[1000] = "der große 一只狗 running \xff >>de<< é ";
    memset(some + strlen(some), 'q', sizeof some - 1 - strlen(some));
    if (!heed_encode(t, some, sizeof some - 1, &ids, NULL) &&
        !heed_decode(t, ids.v, ids.n, &text, &text_len, NULL))
        free(text);
    struct subword *s;
    if (!subword_new(&s, t, 0.5f, NULL)) {
        assert_int_equal(subword_run(s, some, sizeof some - 1, len, &ids, NULL), HEED_OK);
        subword_free(s);
    }
    free(ids.v);
    heed_tokenizer_free(t);
    return true;
}

static void test_broken_models(void **state)
{
    (void)state;
    size_t len;
    char *data = file_bytes(at("model"), &len);
    assert_false(survive(data, 0));
    assert_false(survive("hello world", 11));
    for (size_t i = 0; i < len; i += 3) {
        char *cut = malloc(i + 1); /* exactly sized, for the address sanitizer */
        memcpy(cut, data, i);
        survive(cut, i);
        free(cut);
        for (int k = 1; k < 256; k *= 5) {
            data[i] ^= (char)k;
            survive(data, len);
            data[i] ^= (char)k;
        }
    }
    assert_true(survive(data, len));
    free(data);
    assert_null(heed_tokenizer_load(at("missing"), NULL));
    assert_null(heed_tokenizer_load(put_text("empty", ""), NULL));
}

/* The model with more fields behind it: a later field wins or is added. */
static bool survive_with(const char *extra, size_t n)
{
    size_t len;
    char *data = file_bytes(at("model"), &len);
    memcpy(data + len, extra, n);
    bool loaded = survive(data, len + n);
    free(data);
    return loaded;
}

/* A field's number and the length of its bytes, as a varint of three bytes. */
static unsigned char *field_begin(unsigned char *p, int number, size_t len)
{
    *p++ = (unsigned char)(number << 3 | 2);
    *p++ = (unsigned char)(len % 128 | 128);
    *p++ = (unsigned char)(len / 128 % 128 | 128);
    *p++ = (unsigned char)(len / 16384);
    return p;
}

/* A normalization table of these units, and then text. */
static bool survive_units(const uint32_t *unit, uint32_t units, const char *text, size_t text_len)
{
    static unsigned char table[1 << 18];
    uint32_t blob = 4 + 4 * units + (uint32_t)text_len, size = 4 * units;
    unsigned char *p = field_begin(table, 3, blob + 4); /* normalizer_spec */
    p = field_begin(p, 2, blob);                        /* precompiled_charsmap */
    memcpy(p, &size, 4);
    memcpy(p + 4, unit, size);
    memcpy(p + 4 + size, text, text_len);
    return survive_with((char *)table, (size_t)(p - table) + blob);
}

/* A root and units that no lookup enters. */
static bool survive_table(uint32_t units, uint32_t root, const char *text, size_t text_len)
{
    uint32_t unit[512];
    for (uint32_t i = 0; i < units; i++) unit[i] = i ? 1u << 31 : root;
    return survive_units(unit, units, text, text_len);
}

enum { BLOCK = 256, HAS_LEAF = 1 << 8 };

/* A table whose rules are "q", "qq" and so on, `rules` of them; the last may be followed by itself.
 * Unit 0 is the root; the units behind rule k are the block k + 1. */
static bool survive_rules(uint32_t rules, bool endless)
{
    static uint32_t unit[BLOCK * 200];
    for (uint32_t i = 0; i < (rules + 2) * BLOCK; i++) unit[i] = i ? 1u << 31 : BLOCK << 10;
    for (uint32_t k = 1; k <= rules; k++) {
        uint32_t at = k * BLOCK ^ 'q', next = (endless && k == rules ? k : k + 1) * BLOCK;
        unit[at] = (at ^ next) << 10 | HAS_LEAF | 'q';
    }
    return survive_units(unit, (rules + 2) * BLOCK, "", 1);
}

/* The model with the tags "q", "qq" and so on. */
static bool survive_tags(int n)
{
    static unsigned char tag[1 << 16];
    unsigned char *p = tag;
    for (int i = 1; i <= n; i++) {
        p = field_begin(p, 1, (size_t)i + 6);
        p = field_begin(p, 1, (size_t)i);
        memset(p, 'q', (size_t)i);
        memcpy(p + i, "\x18\x04", 2);
        p += i + 2;
    }
    return survive_with((char *)tag, (size_t)(p - tag));
}

/* SentencePiece follows its tables without checks, and has room for a fixed number of matches. */
static void test_hostile_tables(void **state)
{
    (void)state;
    uint32_t unit[BLOCK] = {1u << 31 | 1u << 9}; /* a root that looks like a leaf */
    assert_false(survive_units(unit, BLOCK, "", 1));
    unit[0] = 1u << 31;
    assert_false(survive_units(unit, BLOCK, "", 1));
    assert_true(survive_rules(1, false));
    assert_true(survive_rules(32, false));
    assert_false(survive_rules(33, false));
    assert_false(survive_rules(150, false));
    assert_false(survive_rules(1, true));
    assert_true(survive_tags(64));
    assert_false(survive_tags(65));
    assert_false(survive_tags(150));
}

static void test_hostile_models(void **state)
{
    (void)state;
    assert_true(survive_with("", 0));
    assert_false(survive_with("\x0a\x04\x0a\x02"
                              "a\0",
                              6));                             /* a piece with a NUL */
    assert_false(survive_with("\x0a\x03\x0a\x01\xff", 5));     /* a piece that is not UTF-8 */
    assert_false(survive_with("\x0a\x05\x15\0\0\xc0\x7f", 7)); /* a score that is not a number */
    assert_false(survive_with("\x22\x04\x0a\x02\x0a\x00", 6)); /* a self test */
    assert_false(survive_with("\x1a\x04\x12\x02"
                              "ab",
                              6));         /* a table of two bytes */
    assert_false(survive_with("\x0b", 1)); /* a group */
    assert_true(survive_table(256, 'd', "", 1));
    assert_false(survive_table(255, 'd', "", 1));            /* lookups leave the table */
    assert_false(survive_table(256, 1u << 10 << 10, "", 1)); /* so does an offset */
    assert_false(survive_table(256, 1u << 8 | 'd', "", 1));  /* replacement outside */
    assert_false(survive_table(256, 'd', "x", 1));           /* text without an end */
    assert_false(survive("\x0a\x0b\x0a\x05<unk>\x18\x02"
                         "\x0a\x03\x0a\x01"
                         "a",
                         18)); /* no marks */
}

/* The model with more fields behind it, parsed. */
static struct heed_tokenizer *load_with(const char *extra, size_t n)
{
    size_t len;
    char *data = file_bytes(at("model"), &len);
    memcpy(data + len, extra, n);
    struct heed_tokenizer *t = tokenizer_parse(data, len + n, "bytes", NULL);
    assert_non_null(t);
    free(data);
    return t;
}

/* A piece with a tag inside is one that no text is cut into. */
static void test_tags_join_nothing(void **state)
{
    (void)state;
    static const char text[] = ">>de<< der";
    struct heed_ids a = {0}, b = {0};
    struct heed_tokenizer *t = load_with("\x0a\x10\x0a\x09\xe2\x96\x81>>de<<\x15\0\0\x7a\xc9", 18);
    struct subword *s = subword(t, 0);
    assert_int_equal(heed_encode(t, text, strlen(text), &a, NULL), HEED_OK);
    assert_int_equal(subword_run(s, text, strlen(text), 1, &b, NULL), HEED_OK);
    check_same(&a, &b);
    free(a.v);
    free(b.v);
    subword_free(s);
    heed_tokenizer_free(t);
}

static void test_subword_dropout_refuses(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct subword *s;
    struct heed_tokenizer *t = load_with("\x1a\x02\x20\x01", 4); /* spaces are squeezed */
    assert_int_equal(subword_new(&s, t, 0.1f, &err), HEED_EARG);
    assert_non_null(strstr(err.text, "without normalization"));
    heed_tokenizer_free(t);
    t = load_with("\x0a\x08\x0a\x01\x7e\x15\0\0\0\0", 10); /* "~" is the best of all, and last */
    assert_int_equal(subword_new(&s, t, 0.1f, &err), HEED_EARG);
    heed_tokenizer_free(t);
}

/* Runs all tests above with the standard streams redirected to a file, which must stay empty. */
static void test_nothing_is_printed(void **state)
{
    fflush(NULL);
    int out = dup(1), err = dup(2);
    int file = open(at("printed"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(file >= 0);
    dup2(file, 1);
    dup2(file, 2);
    test_training_errors(state);
    test_training_is_deterministic(state);
    test_hostile_models(state);
    fflush(NULL);
    dup2(out, 1);
    dup2(err, 2);
    assert_int_equal(lseek(file, 0, SEEK_END), 0);
    close(file);
    close(out);
    close(err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_round_trip_of_real_text),
        cmocka_unit_test(test_encoder_forgets),
        cmocka_unit_test(test_subword_dropout),
        cmocka_unit_test(test_source_text),
        cmocka_unit_test(test_ill_formed_text),
        cmocka_unit_test(test_decode_refuses_wrong_ids),
        cmocka_unit_test(test_training_is_deterministic),
        cmocka_unit_test(test_training_errors),
        cmocka_unit_test(test_training_output),
        cmocka_unit_test(test_broken_models),
        cmocka_unit_test(test_hostile_models),
        cmocka_unit_test(test_hostile_tables),
        cmocka_unit_test(test_tags_join_nothing),
        cmocka_unit_test(test_subword_dropout_refuses),
        cmocka_unit_test(test_nothing_is_printed),
    };
    return cmocka_run_group_tests(tests, setup, folder_remove);
}
