/*
 * test_batch.c - every pair comes once per epoch, in an order that a cursor can resume; no batch is
 * larger than allowed; faults of a corpus are reported.
 */
#include "text_files.h"

#include "corpus/batch.h"
#include "tokens/tokenizer.h"

static struct heed_tokenizer *tok;

/* Pairs that are all different, of different lengths; the caller frees the text. side 0: source, 1:
 * target, 2: both with a tab between. */
static char *some_pairs(int n, int side)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    for (int i = 0; i < n; i++) {
        if (side != 1) fprintf(f, "source %d", i);
        for (int k = 0; side != 1 && k < i * 7 % 11; k++) fprintf(f, " runs");
        if (side == 2) fputc('\t', f);
        if (side != 0) fprintf(f, "Ziel %d", i);
        for (int k = 0; side != 0 && k < i * 5 % 13; k++) fprintf(f, " läuft");
        fputc('\n', f);
    }
    fclose(f);
    return text;
}

static int setup(void **state)
{
    if (folder_make(state)) return -1;
    for (int side = 0; side < 3; side++) {
        char *text = some_pairs(300, side);
        put_text(side == 0 ? "a" : side == 1 ? "b" : "ab", text);
        free(text);
    }
    struct heed_error err = {0};
    struct heed_tokenizer_options o = {.vocab_size = 290};
    const char *path = at("ab");
    if (!heed_tokenizer_train(&path, 1, &o, at("model"), &err))
        tok = heed_tokenizer_load(at("model"), &err);
    if (!tok) print_error("%s\n", err.text);
    return tok ? 0 : -1;
}

static int teardown(void **state)
{
    heed_tokenizer_free(tok);
    return folder_remove(state);
}

/* Options over one corpus; names are in the folder, tgt may be NULL. */
struct source {
    const char *src, *tgt;
    struct batch_options o;
};

static struct source source(const char *src, const char *tgt)
{
    struct source s = {.src = at(src), .tgt = tgt ? at(tgt) : NULL};
    s.o = (struct batch_options){
        .tokenizer = tok, .batch_tokens = 200, .max_length = 100, .seed = 42, .shuffle = true};
    return s;
}

static enum heed_status try_open(struct batches **out, const struct source *s,
                                 struct heed_error *err)
{
    struct batch_options o = s->o;
    o.corpus = (struct heed_corpus){.src = &s->src, .tgt = s->tgt ? &s->tgt : NULL, .n = 1};
    return batch_open(out, &o, err);
}

static struct batches *open_stream(const struct source *s)
{
    struct heed_error err = {0};
    struct batches *b;
    if (try_open(&b, s, &err)) fail_msg("%s", err.text);
    return b;
}

static void check_side(const int32_t *off, const int32_t *len, const int32_t *pos, int n, int rows,
                       int max)
{
    int longest = 0;
    assert_int_equal(off[0], 0);
    for (int i = 0; i < n; i++) {
        assert_int_equal(off[i + 1] - off[i], len[i]);
        for (int k = 0; k < len[i]; k++) assert_int_equal(pos[off[i] + k], k);
        if (len[i] > longest) longest = len[i];
    }
    assert_int_equal(off[n], rows);
    assert_int_equal(longest, max);
}

static void check_packed(const struct packed *p, int budget)
{
    int bos = tokenizer_bos(tok), eos = tokenizer_eos(tok);
    assert_true(p->n > 0 && p->rows_src <= budget && p->rows_tgt <= budget);
    check_side(p->src_off, p->src_len, p->src_pos, p->n, p->rows_src, p->max_src);
    check_side(p->tgt_off, p->tgt_len, p->tgt_pos, p->n, p->rows_tgt, p->max_tgt);
    for (int i = 0; i < p->n; i++) {
        assert_int_equal(p->src[p->src_off[i + 1] - 1], eos);
        assert_int_equal(p->tgt_in[p->tgt_off[i]], bos);
        assert_int_equal(p->tgt_out[p->tgt_off[i + 1] - 1], eos);
        for (int k = p->tgt_off[i]; k < p->tgt_off[i + 1] - 1; k++)
            assert_int_equal(p->tgt_in[k + 1], p->tgt_out[k]);
    }
}

static uint64_t mix(uint64_t h, const int32_t *v, int n)
{
    for (int i = 0; i < n; i++) h = (h ^ (uint32_t)v[i]) * 0x100000001b3ull;
    return h;
}

static uint64_t pair_print(const struct packed *p, int i)
{
    uint64_t h = mix(14695981039346656037ull, p->src + p->src_off[i], p->src_len[i]);
    return mix(h, p->tgt_out + p->tgt_off[i], p->tgt_len[i]);
}

static uint64_t batch_print(const struct packed *p)
{
    uint64_t h = mix((uint64_t)p->n, p->src, p->rows_src);
    return mix(h, p->tgt_out, p->rows_tgt);
}

enum { TAPE = 4096 };

/* What a stream gave: each batch as text, with the cursor behind it, and each pair. */
struct tape {
    uint64_t batch[TAPE], pair[TAPE];
    struct batch_cursor after[TAPE];
    int n, pairs;
    bool end;
};

/* Takes batches until the end or the epoch given. */
static void record(struct tape *t, const struct source *s, int64_t epoch)
{
    struct batches *b = open_stream(s);
    struct batch_cursor after = s->o.start;
    const struct packed *p;
    struct heed_error err = {0};
    memset(t, 0, sizeof *t);
    while (after.epoch < epoch) {
        if (batch_next(b, &p, &after, &err)) fail_msg("%s", err.text);
        if (!p) {
            t->end = true;
            break;
        }
        assert_true(t->n < TAPE && t->pairs + p->n <= TAPE);
        check_packed(p, s->o.batch_tokens);
        t->batch[t->n] = batch_print(p);
        t->after[t->n++] = after;
        for (int i = 0; i < p->n; i++) t->pair[t->pairs++] = pair_print(p, i);
    }
    batch_free(b);
}

static int print_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void sort_pairs(struct tape *t)
{
    qsort(t->pair, (size_t)t->pairs, sizeof *t->pair, print_compare);
}

static struct tape x, y; /* large, so not on the stack */

static void expect_equal(const struct tape *a, const struct tape *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->batch, b->batch, (size_t)a->n * sizeof *a->batch);
    assert_memory_equal(a->after, b->after, (size_t)a->n * sizeof *a->after);
}

static void test_file_order(void **state)
{
    (void)state;
    struct source s = source("ab", NULL);
    char *want = some_pairs(300, 2), *got = NULL;
    size_t len;
    FILE *f = open_memstream(&got, &len);
    for (int pool = 0; pool < 2; pool++) { /* one pool, then several */
        s.o.shuffle = false;
        s.o.pool_tokens = pool ? 700 : 0;
        struct batches *b = open_stream(&s);
        struct batch_cursor after;
        const struct packed *p;
        rewind(f);
        while (!batch_next(b, &p, &after, NULL) && p) {
            check_packed(p, 200);
            for (int i = 0; i < p->n; i++) {
                char *src, *tgt;
                size_t n;
                heed_decode(tok, p->src + p->src_off[i], (size_t)p->src_len[i], &src, &n, NULL);
                heed_decode(tok, p->tgt_in + p->tgt_off[i], (size_t)p->tgt_len[i], &tgt, &n, NULL);
                fprintf(f, "%s\t%s\n", src, tgt);
                free(src);
                free(tgt);
            }
        }
        fflush(f);
        assert_string_equal(got, want);
        assert_int_equal(after.epoch, 1);
        assert_int_equal(batch_next(b, &p, &after, NULL), HEED_OK); /* again NULL */
        assert_null(p);
        assert_int_equal(batch_counted(b).pairs, 300);
        batch_free(b);
    }
    fclose(f);
    free(got);
    free(want);
}

/* In every order, an epoch has all pairs of the corpus. */
static void test_every_pair_once_an_epoch(void **state)
{
    (void)state;
    struct source s = source("a", "b");
    s.o.shuffle = false;
    record(&y, &s, 1);
    sort_pairs(&y);
    assert_int_equal(y.pairs, 300);
    s.o.shuffle = true;
    for (int pool = 0; pool < 2; pool++) {
        s.o.pool_tokens = pool ? 700 : 0;
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            s.o.start = (struct batch_cursor){.epoch = epoch};
            record(&x, &s, epoch + 1);
            sort_pairs(&x);
            assert_int_equal(x.pairs, 300);
            assert_memory_equal(x.pair, y.pair, 300 * sizeof *x.pair);
        }
    }
}

static void test_order_depends_on_seed_and_epoch_alone(void **state)
{
    (void)state;
    for (int pool = 0; pool < 2; pool++) {
        struct source s = source("a", "b");
        s.o.pool_tokens = pool ? 700 : 0;
        record(&x, &s, 2);
        record(&y, &s, 2);
        expect_equal(&x, &y);
        assert_memory_not_equal(x.pair, x.pair + 300, 300 * sizeof *x.pair);
        s.o.seed++;
        record(&y, &s, 2);
        assert_memory_not_equal(x.pair, y.pair, 300 * sizeof *x.pair);
    }
}

/* Sentences of a batch have similar lengths: the longest and the shortest differ little in most
 * batches. */
static void test_buckets(void **state)
{
    (void)state;
    struct source s = source("a", "b");
    struct batches *b = open_stream(&s);
    struct batch_cursor after = {0};
    const struct packed *p;
    int wide = 0, n = 0;
    for (; after.epoch == 0; n++) {
        assert_int_equal(batch_next(b, &p, &after, NULL), HEED_OK);
        int least = p->max_tgt;
        for (int i = 0; i < p->n; i++) least = p->tgt_len[i] < least ? p->tgt_len[i] : least;
        wide += p->max_tgt - least > 3;
    }
    assert_true(n > 20 && wide < n / 4);
    batch_free(b);
}

/* A stream that is opened at any cursor of a run gives the rest of that run. */
static void check_resume(struct source s, int64_t epochs)
{
    record(&x, &s, epochs);
    assert_true(x.n > 20);
    for (int k = 0; k < x.n; k++) {
        s.o.start = x.after[k];
        record(&y, &s, epochs);
        assert_int_equal(y.n, x.n - k - 1);
        assert_memory_equal(y.batch, x.batch + k + 1, (size_t)y.n * sizeof *y.batch);
        assert_memory_equal(y.after, x.after + k + 1, (size_t)y.n * sizeof *y.after);
    }
}

static void test_resume(void **state)
{
    (void)state;
    struct source s = source("ab", NULL);
    s.o.pool_tokens = 700;
    check_resume(s, 3);
    assert_true(x.after[x.n / 2].pool > 1);
    s.o.shuffle = false;
    check_resume(s, 1);
    s = source("ab", NULL);
    check_resume(s, 3);
    assert_int_equal(x.after[x.n / 2].pool, 0);
}

/* The pieces of every pair in an epoch, in the order of the corpus. */
static void record_sorted(struct tape *t, struct source s, int64_t epoch)
{
    s.o.start = (struct batch_cursor){.epoch = epoch};
    record(t, &s, epoch + 1);
    sort_pairs(t);
    assert_int_equal(t->pairs, 300);
}

/* Subword dropout cuts each pair anew in every epoch, by its number and not by its pool. */
static void test_subword_dropout(void **state)
{
    (void)state;
    struct source one = source("ab", NULL), several = one;
    one.o.subword_dropout = several.o.subword_dropout = 0.3f;
    one.o.threads = 1;
    several.o.pool_tokens = 700;
    check_resume(one, 3);
    check_resume(several, 3);
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        record_sorted(&x, one, epoch);
        record_sorted(&y, several, epoch);
        assert_memory_equal(x.pair, y.pair, 300 * sizeof *x.pair);
    }
    record_sorted(&y, one, 0);
    int same = 0;
    for (int i = 0; i < 300; i++)
        same += bsearch(&x.pair[i], y.pair, 300, sizeof *y.pair, print_compare) != NULL;
    assert_true(same < 30);
}

/* However many shards share an epoch, together they have every pair once; a shard can be resumed at
 * any batch. */
static void test_shards(void **state)
{
    (void)state;
    struct source s = source("a", "b");
    record_sorted(&y, s, 0);
    for (int pool = 0; pool < 2; pool++) {
        s.o.pool_tokens = pool ? 300 : 0;
        for (s.o.shards = 2; s.o.shards <= 8; s.o.shards++) {
            static struct tape all;
            all.pairs = 0;
            for (s.o.shard = 0; s.o.shard < s.o.shards; s.o.shard++) {
                record(&x, &s, 1);
                memcpy(all.pair + all.pairs, x.pair, (size_t)x.pairs * sizeof *x.pair);
                all.pairs += x.pairs;
            }
            sort_pairs(&all);
            assert_int_equal(all.pairs, 300);
            assert_memory_equal(all.pair, y.pair, 300 * sizeof *y.pair);
        }
    }
    s.o.shards = 3;
    s.o.shard = 1;
    check_resume(s, 4);
    s.o.shard = 3;
    struct batches *b;
    assert_int_equal(try_open(&b, &s, NULL), HEED_EARG);
    s.o.shard = 0;
    s.o.shards = 301;
    assert_int_equal(try_open(&b, &s, NULL), HEED_EARG);
}

/* Streams that share files and threads give what each gives alone. */
static void test_shared_streams(void **state)
{
    (void)state;
    enum { SHARDS = 4 };
    struct source s = source("a", "b");
    s.o.shards = SHARDS;
    s.o.pool_tokens = 300;
    s.o.corpus = (struct heed_corpus){.src = &s.src, .tgt = &s.tgt, .n = 1};
    struct batch_shared *shared;
    struct batches *b[SHARDS];
    assert_int_equal(batch_share(&shared, &s.o, NULL), HEED_OK);
    s.o.shared = shared;
    for (s.o.shard = 0; s.o.shard < SHARDS; s.o.shard++)
        assert_int_equal(batch_open(&b[s.o.shard], &s.o, NULL), HEED_OK);
    s.o.shared = NULL;
    for (s.o.shard = 0; s.o.shard < SHARDS; s.o.shard++) {
        record(&x, &s, 3);
        for (int i = 0; i < x.n; i++) {
            const struct packed *p;
            struct batch_cursor after;
            assert_int_equal(batch_next(b[s.o.shard], &p, &after, NULL), HEED_OK);
            assert_true(batch_print(p) == x.batch[i]);
            assert_memory_equal(&after, &x.after[i], sizeof after);
        }
    }
    for (int i = 0; i < SHARDS; i++) batch_free(b[i]);
    batch_unshare(shared);
}

static void test_threads_do_not_matter(void **state)
{
    (void)state;
    for (int pool = 0; pool < 2; pool++) {
        struct source s = source("ab", NULL);
        s.o.subword_dropout = 0.1f;
        s.o.pool_tokens = pool ? 4000 : 0;
        s.o.threads = 1;
        record(&x, &s, 2);
        s.o.threads = 4;
        record(&y, &s, 2);
        expect_equal(&x, &y);
    }
}

/* An index that is kept gives the batches that a new one gives. */
static void test_kept_index(void **state)
{
    (void)state;
    struct source s = source("ab", NULL);
    s.o.pool_tokens = 700;
    record(&x, &s, 2);
    s.o.index = at("index");
    for (int i = 0; i < 2; i++) {
        record(&y, &s, 2);
        expect_equal(&x, &y);
    }
    check_resume(s, 2);
    struct heed_error err = {0};
    struct batch_cursor after;
    const struct packed *p;
    put_text("changing", "");
    char *text = some_pairs(300, 2);
    put_text("changing", text);
    struct source c = source("changing", NULL);
    c.o.pool_tokens = 700;
    struct batches *b = open_stream(&c);
    put_text("changing", text + 1);
    free(text);
    while (!batch_next(b, &p, &after, &err)) assert_int_equal(after.epoch, 0);
    assert_non_null(strstr(err.text, "was written to while it was in use"));
    batch_free(b);
}

/* Two files, one twice as often and one half as often as by default. */
static void test_weights(void **state)
{
    (void)state;
    char *text = some_pairs(100, 2);
    put_text("few", text);
    free(text);
    const char *src[] = {at("few"), at("ab")};
    const double weight[] = {2, 0.5};
    struct batch_options o = source("ab", NULL).o;
    o.corpus = (struct heed_corpus){.src = src, .n = 2, .weight = weight};
    struct heed_error err = {0};
    struct batches *b;
    struct batch_cursor after = {0};
    const struct packed *p;
    int pairs = 0;
    assert_int_equal(batch_open(&b, &o, &err), HEED_OK);
    for (int epoch = 1; epoch <= 2; epoch++) {
        for (; after.epoch < epoch; pairs += p->n)
            assert_int_equal(batch_next(b, &p, &after, &err), HEED_OK);
        assert_int_equal(pairs, epoch * (200 + 150));
    }
    batch_free(b);
    /* 100 and 300 pairs at temperature 2: 1 to the square root of 3 */
    o.corpus = (struct heed_corpus){.src = src, .n = 2, .temperature = 2};
    assert_int_equal(batch_open(&b, &o, &err), HEED_OK);
    after.epoch = pairs = 0;
    for (; after.epoch < 1; pairs += p->n)
        assert_int_equal(batch_next(b, &p, &after, &err), HEED_OK);
    assert_int_equal(pairs, 400);
    batch_free(b);
}

/* Cursors that no run of this corpus gives, but that of a corpus that has changed since may. */
static void test_cursor_behind_the_end(void **state)
{
    (void)state;
    struct source s = source("ab", NULL);
    s.o.start = (struct batch_cursor){.epoch = 1};
    record(&x, &s, 2);
    s.o.start = (struct batch_cursor){0, 99, 3};
    record(&y, &s, 2);
    expect_equal(&x, &y);
    s.o.start = (struct batch_cursor){0, 0, 99999};
    record(&y, &s, 2);
    expect_equal(&x, &y);
    s.o.shuffle = false;
    s.o.start = (struct batch_cursor){.epoch = 1};
    record(&y, &s, 9);
    assert_true(y.end && y.n == 0);
    s.o.start = (struct batch_cursor){.batch = -1};
    struct batches *b;
    assert_int_equal(try_open(&b, &s, NULL), HEED_EARG);
}

static void test_formats_give_equal_batches(void **state)
{
    (void)state;
    char *text = some_pairs(300, 2);
    size_t n;
    unsigned char *data = gzip_of(text, strlen(text), &n);
    put("ab.gz", data, n);
    free(data);
    data = xz_of(text, strlen(text), &n);
    put("ab.xz", data, n);
    free(data);
    free(text);
    struct source s = source("a", "b"), t;
    record(&x, &s, 2);
    static const char *const name[] = {"ab", "ab.gz", "ab.xz"};
    for (int i = 0; i < 3; i++) {
        t = source(name[i], NULL);
        record(&y, &t, 2);
        expect_equal(&x, &y);
    }
}

static void test_counts(void **state)
{
    (void)state;
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    fprintf(f, "one\teins\r\n");              /* fine */
    fprintf(f, "\t\n\n   \tleer\nempty\t\n"); /* four empty */
    fprintf(f, "two\tzwei\tthird column\n");  /* fine */
    fprintf(f, "bad \xff byte\tZiel\nnul \t");
    fwrite("\0\n", 1, 2, f);                         /* two invalid, kept */
    for (int i = 0; i < 1 << 20; i++) fputc('x', f); /* one line of a megabyte */
    fprintf(f, "\tlong\nlong\t");
    for (int i = 0; i < 300; i++) fprintf(f, "Wort%d ", i); /* and one of too many tokens */
    fprintf(f, "\nlast\tohne Zeilenende");
    fclose(f);
    put("odd", text, len);
    free(text);
    struct source s = source("odd", NULL);
    s.o.shuffle = false;
    struct batches *b = open_stream(&s);
    struct batch_counts c = batch_counted(b);
    assert_int_equal(c.pairs, 5);
    assert_int_equal(c.empty, 4);
    assert_int_equal(c.longer, 2);
    assert_int_equal(c.invalid, 2);
    const struct packed *p;
    struct batch_cursor after;
    assert_int_equal(batch_next(b, &p, &after, NULL), HEED_OK);
    assert_int_equal(p->n, 5);
    char *tgt; /* no carriage return, no third column */
    for (int i = 0; i < 2; i++) {
        heed_decode(tok, p->tgt_in + p->tgt_off[i], (size_t)p->tgt_len[i], &tgt, &len, NULL);
        assert_string_equal(tgt, i ? "zwei" : "eins");
        free(tgt);
    }
    batch_free(b);
}

/* The counts are those of one epoch, however many were read. */
static void test_counts_of_one_epoch(void **state)
{
    (void)state;
    struct source s = source("ab", NULL);
    s.o.pool_tokens = 700;
    s.o.start = (struct batch_cursor){
        .pool = 2}; /* the first epoch that is read completely is the next one */
    struct batches *b = open_stream(&s);
    struct batch_cursor after = {0};
    const struct packed *p;
    while (after.epoch < 4 || after.pool < 2)
        assert_int_equal(batch_next(b, &p, &after, NULL), HEED_OK);
    assert_int_equal(batch_counted(b).pairs, 300);
    batch_free(b);
}

static void test_long_sentences_are_dropped(void **state)
{
    (void)state;
    struct source s = source("ab", NULL);
    s.o.max_length = 12;
    record(&x, &s, 1);
    assert_in_range(x.pairs, 1, 299);
    int by_length = x.pairs;
    s.o.max_length = 100;
    s.o.batch_tokens = 12; /* a sentence that fits into no batch is dropped as well */
    record(&x, &s, 1);
    assert_int_equal(x.pairs, by_length);
}

static void test_several_files(void **state)
{
    (void)state;
    const char *src[] = {at("a"), at("a")}, *tgt[] = {at("b"), at("b")};
    struct batch_options o = source("a", "b").o;
    o.corpus = (struct heed_corpus){.src = src, .tgt = tgt, .n = 2};
    struct batches *b;
    assert_int_equal(batch_open(&b, &o, NULL), HEED_OK);
    assert_int_equal(batch_counted(b).pairs, 600);
    batch_free(b);
}

static void expect_error(struct source s, enum heed_status status, const char *words)
{
    struct heed_error err = {0};
    struct batches *b = NULL;
    assert_int_equal(try_open(&b, &s, &err), status);
    assert_null(b);
    if (!strstr(err.text, words)) fail_msg("\"%s\" lacks \"%s\"", err.text, words);
}

static void test_errors(void **state)
{
    (void)state;
    expect_error(source("missing", NULL), HEED_EIO, "missing");
    expect_error(source("a", "missing"), HEED_EIO, "missing");
    char *text = some_pairs(299, 1);
    put_text("short", text);
    free(text);
    expect_error(source("a", "short"), HEED_EFORMAT, "a has 300 lines, ");
    expect_error(source("a", "short"), HEED_EFORMAT, "short ends after 299");
    expect_error(source("short", "b"), HEED_EFORMAT, "b has 300 lines, ");
    put_text("tabless", "one\teins\ntwo\tzwei\nthree drei\n");
    expect_error(source("tabless", NULL), HEED_EFORMAT, "tabless, line 3: no tab");
    put_text("empty", "");
    expect_error(source("empty", NULL), HEED_EFORMAT, "empty is empty");
    expect_error(source("a", "empty"), HEED_EFORMAT, "ends after 0");
    put_text("blank", "\t\n \t \n");
    expect_error(source("blank", NULL), HEED_EFORMAT, "no usable pair in");
    struct source s = source("a", "b");
    s.o.batch_tokens = 1;
    expect_error(s, HEED_EARG, "batch_tokens is 1");
    s = source("a", "b");
    s.o.max_length = 2;
    expect_error(s, HEED_EFORMAT, "300 are longer than the 2 tokens that max_length allows");
    struct batches *b;
    struct batch_options o = source("a", "b").o;
    assert_int_equal(batch_open(&b, &o, NULL), HEED_EARG);
    batch_free(NULL);
}

/* Of a corpus of several pools, what is wrong with a file as a whole is reported when it is opened,
 * because the index is made then; a fault of a line is reported when it is read, and from then on.
 */
static void test_late_errors(void **state)
{
    (void)state;
    char *text = some_pairs(300, 2);
    size_t n;
    unsigned char *gz = gzip_of(text, strlen(text), &n), *xz;
    put("cut.gz", gz, n - 20);
    xz = xz_of(text, strlen(text), &n);
    put("cut.xz", xz, n - 20);
    memcpy(strrchr(text, '\t'), " ", 1);
    put_text("tabless", text);
    free(text);
    free(gz);
    free(xz);
    put_text("short", text = some_pairs(299, 1));
    free(text);
    struct source s[] = {source("cut.gz", NULL), source("cut.xz", NULL), source("a", "short"),
                         source("tabless", NULL)};
    const char *const words[] = {"truncated", "truncated", "a has 300 lines", "line 300: no tab"};
    for (int i = 0; i < 4; i++) {
        expect_error(s[i], HEED_EFORMAT, words[i]);
        s[i].o.pool_tokens = 300;
        if (i < 3) expect_error(s[i], HEED_EFORMAT, words[i]);
    }
    struct batches *b = open_stream(&s[3]);
    struct batch_cursor after;
    const struct packed *p;
    struct heed_error err = {0};
    int got = 0;
    while (!batch_next(b, &p, &after, &err)) got++;
    assert_true(got > 3);
    assert_non_null(strstr(err.text, words[3]));
    err.text[0] = 0;
    assert_int_equal(batch_next(b, &p, &after, &err), HEED_EFORMAT);
    assert_non_null(strstr(err.text, words[3]));
    batch_free(b);
}

static void test_free_while_the_thread_works(void **state)
{
    (void)state;
    char *text = some_pairs(20000, 2);
    put_text("many", text);
    free(text);
    struct source s = source("many", NULL);
    s.o.pool_tokens = 20000;
    struct batch_cursor after;
    const struct packed *p;
    for (int i = 0; i < 30; i++) {
        struct batches *b = open_stream(&s);
        for (int k = 0; k < i; k++) assert_int_equal(batch_next(b, &p, &after, NULL), HEED_OK);
        batch_free(b);
    }
}

/* More than one thread and more than one block: the result is the file in order. */
static void test_blocks_and_threads(void **state)
{
    (void)state;
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    char *once = some_pairs(20000, 2);
    for (int i = 0; i < 4; i++) fprintf(f, "%s", once);
    fclose(f);
    put("blocks", text, len);
    free(text);
    free(once);
    struct source s = source("blocks", NULL);
    s.o.shuffle = false;
    s.o.batch_tokens = 4096;
    struct batches *b = open_stream(&s);
    struct batch_cursor after;
    const struct packed *p;
    uint64_t first[1000];
    int n = 0;
    while (!batch_next(b, &p, &after, NULL) && p) {
        for (int i = 0; i < p->n; i++, n++) {
            uint64_t h = pair_print(p, i);
            if (n < 1000) first[n] = h;
            if (n % 20000 < 1000) assert_true(h == first[n % 20000]);
        }
    }
    assert_int_equal(n, 80000);
    batch_free(b);
}

static void test_packed_make(void **state)
{
    (void)state;
    int32_t a[] = {10, 11, 12}, c[] = {20};
    struct heed_ids src[] = {{a, 3, 3}, {NULL, 0, 0}}, tgt[] = {{NULL, 0, 0}, {c, 1, 1}};
    struct packed *p = packed_make(src, tgt, 2, tokenizer_bos(tok), tokenizer_eos(tok), NULL);
    assert_non_null(p);
    check_packed(p, 100);
    assert_int_equal(p->n, 2);
    assert_int_equal(p->rows_src, 5);
    assert_int_equal(p->rows_tgt, 3);
    assert_int_equal(p->max_src, 4);
    assert_memory_equal(p->src, a, sizeof a);
    assert_int_equal(p->tgt_out[1], 20);
    packed_free(p);
    p = packed_make(src, NULL, 2, 1, 2, NULL);
    assert_int_equal(p->rows_tgt, 0);
    assert_int_equal(p->tgt_off[2], 0);
    check_side(p->src_off, p->src_len, p->src_pos, p->n, p->rows_src, p->max_src);
    packed_free(p);
    p = packed_make(NULL, NULL, 0, 1, 2, NULL);
    assert_int_equal(p->n, 0);
    assert_int_equal(p->src_off[0], 0);
    packed_free(p);
    packed_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file_order),
        cmocka_unit_test(test_every_pair_once_an_epoch),
        cmocka_unit_test(test_order_depends_on_seed_and_epoch_alone),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_subword_dropout),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_shared_streams),
        cmocka_unit_test(test_threads_do_not_matter),
        cmocka_unit_test(test_kept_index),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_cursor_behind_the_end),
        cmocka_unit_test(test_formats_give_equal_batches),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_counts_of_one_epoch),
        cmocka_unit_test(test_long_sentences_are_dropped),
        cmocka_unit_test(test_several_files),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_late_errors),
        cmocka_unit_test(test_free_while_the_thread_works),
        cmocka_unit_test(test_blocks_and_threads),
        cmocka_unit_test(test_packed_make),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
