/*
 * fuzz_vocab.c - libFuzzer entry: any bytes as a vocabulary, and any bytes as text for it.
 *
 * The first byte is the number of bytes of text that follow; the model file is the rest. A
 * vocabulary is either refused with a sentence, or every function that encodes or decodes works
 * with it on any text and any ids.
 *
 * A model file is a protobuf message, where the length of a part stands in front of it. Most
 * mutations are therefore made inside one part, and the lengths of all parts around it are
 * corrected.
 */
#include "fuzz.h"
#include "tokens/spm.h"
#include "tokens/subword.h"
#include "tokens/tokenizer.h"

/* ---- messages ---- */

/* A message being written. */
struct wire {
    uint8_t byte[1 << 16];
    size_t n;
};

static void put_varint(struct wire *w, uint64_t v)
{
    for (; v >= 0x80; v >>= 7) w->byte[w->n++] = (uint8_t)(v | 0x80);
    w->byte[w->n++] = (uint8_t)v;
}

static void put_bytes(struct wire *w, int number, const void *data, size_t size)
{
    put_varint(w, (uint64_t)number << 3 | 2);
    put_varint(w, size);
    memcpy(w->byte + w->n, data, size);
    w->n += size;
}

static void put_number(struct wire *w, int number, uint64_t v)
{
    put_varint(w, (uint64_t)number << 3);
    put_varint(w, v);
}

static void put_piece(struct wire *w, const char *text, float score, int kind)
{
    struct wire piece = {.n = 0};
    put_bytes(&piece, 1, text, strlen(text));
    put_varint(&piece, 2 << 3 | 5);
    memcpy(piece.byte + piece.n, &score, sizeof score);
    piece.n += sizeof score;
    put_number(&piece, 3, (uint64_t)kind);
    put_bytes(w, 1, piece.byte, piece.n);
}

/* A model of a few pieces; kind: 1 unigram, 2 BPE, 3 words, 4 characters. */
static void put_model(struct wire *w, int kind)
{
    struct wire part = {.n = 0};
    w->n = 0;
    put_piece(w, "<unk>", 0, 2);
    put_piece(w, "<s>", 0, 3);
    put_piece(w, "</s>", 0, 3);
    put_piece(w, ">>de<<", 0, 4);
    put_piece(w, "\xe2\x96\x81", -1, 1);
    put_piece(w, "a", -2, 1);
    put_piece(w,
              "\xe2\x96\x81"
              "ab",
              -3, 1);
    put_piece(w, "b", -4, 1);
    put_piece(w, "c", -5, 5);
    put_number(&part, 3, (uint64_t)kind);
    put_bytes(w, 2, part.byte, part.n);
    part.n = 0;
    /* A normalization table: one block of units that point to themselves, and a replacement. */
    uint8_t map[4 + 4 * 256 + 4] = {0, 4, 0, 0};
    memcpy(map + 4 + 4 * 256, "x\0y", 4);
    put_bytes(&part, 1, "fuzz", 4);
    put_bytes(&part, 2, map, sizeof map);
    put_number(&part, 4, 1);
    put_bytes(w, 3, part.byte, part.n);
}

/* ---- changes ---- */

static bool get_varint(const uint8_t *data, size_t size, size_t *at, uint64_t *v)
{
    *v = 0;
    for (int shift = 0; shift < 64 && *at < size; shift += 7) {
        uint8_t byte = data[(*at)++];
        *v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

/* A part of a message: the bytes of its tag and length, and its content. */
struct part {
    size_t begin, content, end;
};

/* The part of bytes number `which`, counted round, of a message; false where it has none. */
static bool part_find(const uint8_t *data, size_t size, unsigned which, struct part *found)
{
    for (int round = 0, n = 0; round < 2; round++) {
        size_t at = 0;
        unsigned seen = 0;
        while (at < size) {
            uint64_t tag, v;
            size_t begin = at;
            if (!get_varint(data, size, &at, &tag)) break;
            if ((tag & 7) == 1 || (tag & 7) == 5) {
                at += (tag & 7) == 1 ? 8 : 4;
                continue;
            }
            if (!get_varint(data, size, &at, &v)) break;
            if ((tag & 7) != 2) continue;
            if (v > size - at) break;
            *found = (struct part){begin, at, at + (size_t)v};
            if (round && seen == which % (unsigned)n) return true;
            seen++;
            at += (size_t)v;
        }
        n = (int)seen;
        if (n == 0) return false;
    }
    return false;
}

/* Mutates a message in place: one of its parts, a part of a part, or the whole. Returns its size.
 */
static size_t message_change(uint8_t *data, size_t size, size_t most, unsigned seed, int depth)
{
    struct part p;
    enum { ROOM = 16 }; /* for the length to grow */
    if (depth == 0 || seed % 4 == 0 || most < size + ROOM || !part_find(data, size, seed / 64, &p))
        return LLVMFuzzerMutate(data, size, most);
    if (seed % 16 == 1) { /* duplicates the part */
        size_t n = p.end - p.begin;
        if (size + n > most) return size;
        memmove(data + p.end + n, data + p.end, size - p.end);
        memcpy(data + p.end, data + p.begin, n);
        return size + n;
    }
    size_t behind = size - p.end, length_at = p.begin, room = most - size - ROOM;
    uint64_t tag;
    get_varint(data, size, &length_at, &tag);
    size_t old = p.end - p.content;
    uint8_t *content = malloc(old + room + 1);
    if (!content) return size;
    memcpy(content, data + p.content, old);
    size_t n = message_change(content, old, old + room, seed / 4, depth - 1);
    struct wire head = {.n = 0};
    put_varint(&head, n);
    memmove(data + length_at + head.n + n, data + p.end, behind);
    memcpy(data + length_at, head.byte, head.n);
    memcpy(data + length_at + head.n, content, n);
    free(content);
    return length_at + head.n + n + behind;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    size_t text = size ? (size_t)data[0] + 1 : 0;
    if (size == 0 || text >= size || seed % 8 == 0) return LLVMFuzzerMutate(data, size, most);
    return text + message_change(data + text, size - text, most - text, seed / 8, 2);
}

/* ---- seeds ---- */

static void seed_put(const char *name, const void *model, size_t size)
{
    static const char text[] = "the dog >>de<< ab\xe2\x96\x81 \xff\xc3 runs";
    static uint8_t seed[1 << 16];
    seed[0] = sizeof text - 1;
    memcpy(seed + 1, text, sizeof text - 1);
    memcpy(seed + sizeof text, model, size);
    fuzz_seed(name, seed, sizeof text + size);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const words[] = {"<unk>",
                                        "<s>",
                                        "</s>",
                                        "<0x41>",
                                        "<pad>",
                                        "\xe2\x96\x81",
                                        ">>de<<",
                                        "\x18\x06",
                                        "\x18\x04",
                                        "\x18\x02",
                                        "\xff\xff\xff\xff\x0f",
                                        NULL};
    static const char *const name[] = {"unigram", "bpe", "word", "char"};
    if (!fuzz_begin(argc, argv, words)) return 0;
    struct heed_tokenizer *t = fuzz_tokenizer();
    size_t size;
    const char *bytes = tokenizer_bytes(t, &size);
    seed_put("trained", bytes, size);
    heed_tokenizer_free(t);
    for (int kind = 1; kind <= 4; kind++) {
        struct wire w;
        put_model(&w, kind);
        seed_put(name[kind - 1], w.byte, w.n);
    }
    return 0;
}

/* ---- use ---- */

static void decode(const struct heed_tokenizer *t, const int32_t *id, size_t n)
{
    struct heed_error err = {0};
    char *text = NULL;
    size_t len = 0;
    enum heed_status st = heed_decode(t, id, n, &text, &len, &err);
    if (st) {
        must_explain(st, &err);
        must(!text, "a failure leaves the result alone");
        return;
    }
    must(text[len] == '\0', "a text is terminated");
    free(text);
    size_t *end = malloc((n + 1) * sizeof *end);
    text = NULL;
    st = tokenizer_decode_ends(t, id, n, &text, &len, end, &err);
    if (st) must_explain(st, &err);
    free(text);
    free(end);
}

static void encode(const struct heed_tokenizer *t, const char *text, size_t len)
{
    struct heed_error err = {0};
    struct heed_ids ids = {0}, fast = {0};
    int32_t all = heed_tokenizer_size(t);
    enum heed_status st = heed_encode(t, text, len, &ids, &err);
    if (st) must_explain(st, &err);
    for (size_t i = 0; i < ids.n; i++) must(ids.v[i] >= 0 && ids.v[i] < all, "an id is a piece's");
    struct encoder *e = encoder_new(t, &err);
    for (int i = 0; e && !st && i < 2;
         i++) { /* the second time, the encoder has remembered the words */
        fast.n = 0;
        must(!encoder_run(e, text, len, &fast, &err), err.text);
        must(fast.n == ids.n && (!ids.n || !memcmp(fast.v, ids.v, ids.n * sizeof *ids.v)),
             "an encoder gives the same ids");
    }
    encoder_free(e);
    if (!st) decode(t, ids.v, ids.n);
    free(ids.v);
    free(fast.v);
}

static void cut_at_random(const struct heed_tokenizer *t, const char *text, size_t len)
{
    struct heed_error err = {0};
    struct subword *s = NULL;
    struct heed_ids ids = {0};
    enum heed_status st = subword_new(&s, t, 0.3f, &err);
    if (st) {
        must_explain(st, &err);
        must(!s, "a failure leaves the result alone");
        return;
    }
    st = subword_run(s, text, len, 7, &ids, &err);
    if (st) must_explain(st, &err);
    for (size_t i = 0; i < ids.n; i++)
        must(ids.v[i] >= 0 && ids.v[i] < heed_tokenizer_size(t), "an id is a piece's");
    free(ids.v);
    subword_free(s);
}

static void use(const struct heed_tokenizer *t, const char *text, size_t len)
{
    struct heed_error err = {0};
    struct heed_ids tag = {0};
    int32_t id[512], all = heed_tokenizer_size(t), n = all < 512 ? all : 512;
    must(all > 0 && tokenizer_bos(t) >= 0 && tokenizer_bos(t) < all && tokenizer_eos(t) >= 0 &&
             tokenizer_eos(t) < all,
         "a vocabulary has its marks");
    for (int32_t i = 0; i < n; i++) {
        must(heed_tokenizer_piece(t, i), "a piece has a text");
        id[i] = n - 1 - i;
    }
    must(!heed_tokenizer_piece(t, -1) && !heed_tokenizer_piece(t, all), "others have none");
    decode(t, id, (size_t)n);
    encode(t, text, len);
    cut_at_random(t, text, len);
    enum heed_status st = tokenizer_tag(t, "de", &tag, &err);
    if (st) must_explain(st, &err);
    free(tag.v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fuzz_file file;
    if (size == 0 || size <= data[0]) return 0;
    size_t len = data[0];
    struct heed_error err = {0};
    /* A block of its own, so that a sanitizer sees a read beyond it. */
    char *text = malloc(len + 1);
    memcpy(text, data + 1, len);
    const char *path = fuzz_file_put(&file, data + 1 + len, size - 1 - len);
    struct heed_tokenizer *t = heed_tokenizer_load(path, &err);
    if (t) {
        use(t, text, len);
    } else {
        must_explain(err.status, &err);
        must(strstr(err.text, path), "a failure names the file");
    }
    heed_tokenizer_free(t);
    free(text);
    return 0;
}
