/*
 * fuzz_pairs.c - libFuzzer entry: any bytes as parallel text, up to the batches made of it.
 *
 * The first bytes are options; of the rest, the first FILE_END ends one file and begins the next:
 * source and target, or two files of tab-separated pairs. Each batch is checked against packed.h,
 * and a stream that is opened again at a cursor goes on with the very batch that came there.
 */
#include "corpus/batch.h"
#include "fuzz.h"
#include "tokens/tokenizer.h"

enum { FILE_END = 0xff, OPTIONS = 4, BATCHES_MOST = 6 };
enum { PARALLEL = 1, SHUFFLE = 2, SUBWORD = 4, THREADS = 8 };

static struct heed_tokenizer *tokenizer;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const words[] = {"\t", "\n", "\t\n", "\xff", "\xe2\x96\x81", ">>de<<", NULL};
    static const char pairs[] = "\x00\x10\x40\x02"
                                "the dog\tder Hund\nno cat\tkeine Katze\tmore\n\n \t \n\xff"
                                "a\tb\n",
                      sides[] = "\x03\x03\x10\x01"
                                "the dog\nthe cat\n\nruns\n\xff"
                                "der Hund\r\ndie Katze\n\nl\xc3\xa4uft\n",
                      subword[] = "\x0f\x20\x20\x03"
                                  ">>de<< the dog runs there\n\xffund der Hund l\xc3\xa4uft da\n";
    tokenizer = fuzz_tokenizer();
    if (!fuzz_begin(argc, argv, words)) return 0;
    fuzz_seed("pairs", pairs, sizeof pairs - 1);
    fuzz_seed("sides", sides, sizeof sides - 1);
    fuzz_seed("subword", subword, sizeof subword - 1);
    return 0;
}

/* One side: rows of each sentence, its positions and its ids. */
static void check_side(const struct packed *b, int rows, int longest, const int32_t *off,
                       const int32_t *len, const int32_t *pos, const int32_t *id, int most)
{
    int eos = tokenizer_eos(tokenizer), found = 0;
    must(rows > 0 && rows <= most && off[0] == 0 && off[b->n] == rows, "a batch has its rows");
    for (int i = 0; i < b->n; i++) {
        must(len[i] > 1 && off[i + 1] - off[i] == len[i], "a sentence has a token and a mark");
        if (len[i] > found) found = len[i];
        for (int k = 0; k < len[i]; k++) {
            int32_t x = id[off[i] + k];
            must(pos[off[i] + k] == k, "positions count from 0");
            must(x >= 0 && x < heed_tokenizer_size(tokenizer), "ids are in the vocabulary");
        }
        must(id[off[i] + len[i] - 1] == eos, "a sentence ends with its mark");
    }
    must(found == longest, "the longest sentence is known");
}

static void check_batch(const struct packed *b, const struct batch_options *o)
{
    int bos = tokenizer_bos(tokenizer);
    must(b->n > 0 && b->max_src <= o->max_length && b->max_tgt <= o->max_length,
         "no sentence is too long");
    check_side(b, b->rows_src, b->max_src, b->src_off, b->src_len, b->src_pos, b->src,
               o->batch_tokens);
    check_side(b, b->rows_tgt, b->max_tgt, b->tgt_off, b->tgt_len, b->tgt_pos, b->tgt_out,
               o->batch_tokens);
    for (int i = 0; i < b->n; i++)
        for (int k = b->tgt_off[i]; k < b->tgt_off[i + 1]; k++)
            must(b->tgt_in[k] == (k == b->tgt_off[i] ? bos : b->tgt_out[k - 1]),
                 "what goes in is what comes out, shifted by the mark");
}

/* A checksum of a batch. */
static uint64_t batch_sum(const struct packed *b)
{
    uint64_t sum = (uint64_t)b->n;
    for (int i = 0; i < b->rows_src; i++) sum = (sum ^ (uint32_t)b->src[i]) * 0x100000001b3u;
    for (int i = 0; i < b->rows_tgt; i++) sum = (sum ^ (uint32_t)b->tgt_out[i]) * 0x100000001b3u;
    return sum;
}

/* Takes up to `most` batches; sum[i] is the checksum of batch i, and cursor[i] the cursor behind
 * it. */
static int stream_read(const struct batch_options *o, int most, uint64_t *sum,
                       struct batch_cursor *cursor)
{
    struct heed_error err = {0};
    struct batches *s = NULL;
    enum heed_status st = batch_open(&s, o, &err);
    if (st) {
        must_explain(st, &err);
        must(!s, "a failure leaves the result alone");
        return 0;
    }
    int n = 0;
    while (n < most) {
        const struct packed *b;
        if ((st = batch_next(s, &b, &cursor[n], &err))) {
            must_explain(st, &err);
            break;
        }
        if (!b) break;
        check_batch(b, o);
        sum[n++] = batch_sum(b);
    }
    batch_free(s);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fuzz_file file[2];
    if (size < OPTIONS) return 0;
    const uint8_t *text = data + OPTIONS, *end = data + size;
    const uint8_t *cut = memchr(text, FILE_END, (size_t)(end - text));
    if (!cut) cut = end;
    const uint8_t *second = cut < end ? cut + 1 : end;
    const char *name[2] = {fuzz_file_put(&file[0], text, (size_t)(cut - text)),
                           fuzz_file_put(&file[1], second, (size_t)(end - second))};
    bool parallel = data[0] & PARALLEL;
    struct batch_options o = {
        .corpus = {.src = name, .tgt = parallel ? name + 1 : NULL, .n = parallel ? 1 : 2},
        .tokenizer = tokenizer,
        .batch_tokens = 2 + data[2] % 64,
        .max_length = 2 + data[2] / 4,
        .threads = data[0] & THREADS ? 2 : 1,
        .seed = data[3],
        .subword_dropout = data[0] & SUBWORD ? 0.5f : 0,
        .shuffle = data[0] & SHUFFLE,
        .pool_tokens = 1 + data[1]};
    uint64_t sum[BATCHES_MOST], again[1];
    struct batch_cursor cursor[BATCHES_MOST], ignored;
    int next = fuzz_next_fd();
    int n = stream_read(&o, BATCHES_MOST, sum, cursor);
    if (n > 1) {
        int at = data[3] % (n - 1);
        o.start = cursor[at];
        must(stream_read(&o, 1, again, &ignored) == 1, "a stream goes on at a cursor");
        must(again[0] == sum[at + 1], "a stream goes on with the same batch");
    }
    must(fuzz_next_fd() == next, "no file is left open");
    return 0;
}
