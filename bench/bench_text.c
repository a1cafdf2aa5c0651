/*
 * bench_text.c - how fast training text is read through its index, and how well it is shuffled.
 *
 *     bench_text [--pairs FILE --vocab FILE] [--index DIR] [--threads N] [--batch-tokens N]
 *                [--shards N] [--seconds N]
 *
 * Without --pairs, a small corpus is made. Prints
 *
 *   index     seconds until the first batch when the index is made, and when it is there; bytes of
 *             the index for each pair
 *   batches   tokens of both sides per second and per thread, of all shards taken in turn
 *   order     of one epoch: the mean distance in the file between pairs that follow each other,
 *             in parts of the corpus (1/3 if the order is uniform), and chi-square per degree of
 *             freedom of where in the file the pairs of each 64th of the epoch are (about 1)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/parallel.h"
#include "bench.h"
#include "corpus/batch.h"
#include "corpus/order.h"

struct options {
    const char *pairs, *vocab, *index;
    int threads, batch_tokens, shards;
    double seconds;
};

static struct options options_read(int argc, char **argv)
{
    struct options o = {.batch_tokens = 4096, .shards = 1, .seconds = 5};
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (!strcmp(name, "--pairs"))
            o.pairs = value;
        else if (!strcmp(name, "--vocab"))
            o.vocab = value;
        else if (!strcmp(name, "--index"))
            o.index = value;
        else if (!strcmp(name, "--threads"))
            o.threads = atoi(value);
        else if (!strcmp(name, "--batch-tokens"))
            o.batch_tokens = atoi(value);
        else if (!strcmp(name, "--shards"))
            o.shards = atoi(value);
        else if (!strcmp(name, "--seconds"))
            o.seconds = atof(value);
        else
            bench_die("unknown option %s", name);
    }
    return o;
}

/* ---- a corpus of its own ---- */

static char folder[] = "/tmp/heed-bench-XXXXXX";
static char own_pairs[64], own_vocab[64], own_index[64];

static void corpus_make(struct options *o)
{
    struct heed_error err = {0};
    struct heed_tokenizer_options t = {.vocab_size = 2000};
    uint64_t random = 1;
    if (!mkdtemp(folder)) bench_die("cannot make %s", folder);
    snprintf(own_pairs, sizeof own_pairs, "%s/pairs.tsv", folder);
    snprintf(own_vocab, sizeof own_vocab, "%s/vocab.model", folder);
    snprintf(own_index, sizeof own_index, "%s/index", folder);
    FILE *f = fopen(own_pairs, "w");
    if (!f) bench_die("cannot write %s", own_pairs);
    for (int i = 0; i < 100000; i++)
        for (int k = 0; k < 24; k++)
            fprintf(f, "w%" PRIu64 "%c", random_below(&random, 1 + random_below(&random, 5000)),
                    k == 11   ? '\t'
                    : k == 23 ? '\n'
                              : ' ');
    fclose(f);
    const char *text = own_pairs;
    if (heed_tokenizer_train(&text, 1, &t, own_vocab, &err)) bench_die("%s", err.text);
    o->pairs = own_pairs;
    o->vocab = own_vocab;
    o->index = own_index;
}

static void corpus_remove(void)
{
    if (!own_pairs[0]) return;
    file_remove_dir(own_index, NULL);
    file_remove_dir(folder, NULL);
}

/* ---- figures ---- */

static void open_all(struct batches **stream, struct batch_shared **shared, struct batch_options *b)
{
    struct heed_error err = {0};
    b->shared = NULL;
    if (batch_share(shared, b, &err)) bench_die("%s", err.text);
    b->shared = *shared;
    for (b->shard = 0; b->shard < b->shards; b->shard++)
        if (batch_open(&stream[b->shard], b, &err)) bench_die("%s", err.text);
    b->shard = 0;
}

static void free_all(struct batches **stream, struct batch_shared *shared, int n)
{
    for (int i = 0; i < n; i++) batch_free(stream[i]);
    batch_unshare(shared);
}

static void batches_measure(struct batches **stream, const struct options *o, int threads)
{
    struct heed_error err = {0};
    struct batch_cursor after;
    const struct packed *p;
    int64_t tokens = 0, batches = 0;
    double began = bench_now(), time;
    do {
        for (int i = 0; i < o->shards; i++, batches++) {
            if (batch_next(stream[i], &p, &after, &err)) bench_die("%s", err.text);
            tokens += p->rows_src + p->rows_tgt;
        }
        time = bench_now() - began;
    } while (time < o->seconds);
    printf("batches   %.0f tokens/s, %.0f per thread (%" PRId64 " batches in %.1f s)\n",
           (double)tokens / time, (double)tokens / time / threads, batches, time);
}

enum { PARTS = 64 };

static void order_measure(int64_t pairs)
{
    static double seen[PARTS][PARTS];
    const struct order_part part = {pairs, pairs};
    struct order order = order_of(&part, 1, 1, 0);
    double distance = 0, chi = 0, want = (double)pairs / PARTS / PARTS;
    int64_t before = -1;
    for (int64_t i = 0; i < pairs; i++) {
        int64_t at = order_at(&order, i).pair;
        if (before >= 0) distance += (double)llabs(at - before);
        before = at;
        seen[i * PARTS / pairs][at * PARTS / pairs]++;
    }
    for (int a = 0; a < PARTS; a++)
        for (int b = 0; b < PARTS; b++) chi += (seen[a][b] - want) * (seen[a][b] - want) / want;
    printf("order     mean distance %.6f of %" PRId64 " pairs, chi-square %.3f per degree\n",
           distance / (double)(pairs - 1) / (double)pairs, pairs,
           chi / ((PARTS - 1) * (PARTS - 1)));
}

int main(int argc, char **argv)
{
    struct options o = options_read(argc, argv);
    struct heed_error err = {0};
    char lines[FILE_PATH_MAX];
    struct stat info;
    if (!o.pairs) corpus_make(&o);
    if (!o.vocab || !o.index) bench_die("--pairs needs --vocab and --index");
    struct heed_tokenizer *tokenizer = heed_tokenizer_load(o.vocab, &err);
    if (!tokenizer) bench_die("%s", err.text);
    struct batch_options b = {.corpus = {.src = &o.pairs, .n = 1},
                              .tokenizer = tokenizer,
                              .batch_tokens = o.batch_tokens,
                              .max_length = 256,
                              .threads = o.threads,
                              .seed = 1,
                              .shuffle = true,
                              .pool_tokens = own_pairs[0] ? 1 << 20 : 0,
                              .shards = o.shards,
                              .index = o.index};
    struct batches **stream = calloc((size_t)o.shards, sizeof *stream);
    struct batch_shared *shared;
    double seconds[2];
    for (int i = 0; i < 2; i++) {
        double began = bench_now();
        open_all(stream, &shared, &b);
        seconds[i] = bench_now() - began;
        if (i == 0) free_all(stream, shared, o.shards);
    }
    snprintf(lines, sizeof lines, "%s/lines", o.index);
    int64_t pairs = stat(lines, &info) == 0 ? (info.st_size - 56) / 6 - 1 : 0;
    if (pairs < 1) bench_die("the corpus fits into one pool and has no index");
    printf("index     %.2f s to the first batch, then %.2f s with the index; %.1f bytes a pair\n",
           seconds[0], seconds[1], (double)info.st_size / (double)pairs);
    batches_measure(stream, &o, parallel_threads(o.threads));
    free_all(stream, shared, o.shards);
    order_measure(pairs);
    free(stream);
    heed_tokenizer_free(tokenizer);
    corpus_remove();
    return 0;
}
