/*
 * fuzz_weights.c - libFuzzer entry: a file of int8 weights of a small model, with any changes to
 * its tensors. Either a sentence comes back or every byte of every weight can be read.
 *
 * The input is a list of changes, four bytes each, to the types, shapes, names, order and bytes of
 * the tensors. Their offsets are then set right, so that the file is a sound safetensors file;
 * fuzz_safetensors is for the others. The first byte chooses between a file that has the matrices
 * by name and an older one that has them as one tensor.
 */
#include "fuzz.h"

#include "base/file.h"
#include "model/walk.h"
#include "store/weights.h"

enum { TENSORS = 64, DATA_MOST = 1 << 16 };

static const struct heed_config config = {.d_model = 16,
                                          .d_ff = 32,
                                          .heads = 2,
                                          .encoder_layers = 1,
                                          .decoder_layers = 1,
                                          .vocab_size = 20,
                                          .max_length = 8};

static struct {
    struct backend *cpu, *ref;
    struct safetensors *sound; /* a file that can be loaded */
} fuzz;

/* What is written; data lies in `bytes`, filled up with zeros. */
struct file {
    struct tensor t[TENSORS];
    int n;
    uint8_t bytes[DATA_MOST];
    size_t used;
};

static void no_error(enum heed_status s, const struct heed_error *err)
{
    if (s) fprintf(stderr, "%s\n", err->text);
    must(!s, "a sound file can be made");
}

/* Writes the weights of a new model in int8 and maps the file. */
static void make_sound(const char *path)
{
    struct heed_error err = {0};
    struct parameters *p;
    no_error(parameters_open(&p, fuzz.cpu, &config, precision_f32, &err), &err);
    no_error(parameters_init(p, 1, &err), &err);
    no_error(weights_save(p, &(struct flat){.prefix = "", .m = p->master}, 1, path, &err), &err);
    parameters_free(p);
    no_error(weights_open_packed(&p, fuzz.cpu, &config, TYPE_PACKED_I8, path, &err), &err);
    no_error(weights_save_packed(p, path, &err), &err);
    parameters_free(p);
    no_error(safetensors_open(&fuzz.sound, path, &err), &err);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct heed_error err = {0};
    char path[64];
    if (fuzz_begin(argc, argv, NULL)) {
        fuzz_seed("named", "\0", 1);
        fuzz_seed("older", "\1", 1);
    }
    snprintf(path, sizeof path, "/tmp/fuzz_weights-%d", (int)getpid());
    no_error(backend_open(&fuzz.cpu, "cpu", 1, &err), &err);
    no_error(backend_open(&fuzz.ref, "ref", 1, &err), &err);
    make_sound(path);
    unlink(path);
    return 0;
}

/* The tensors of the sound file, or all matrices as one tensor before the vectors. */
static void begin(struct file *f, bool older)
{
    int matrices = 0;
    f->n = 0;
    f->used = 0;
    for (int i = 0; i < safetensors_count(fuzz.sound); i++) {
        const struct tensor *t = safetensors_at(fuzz.sound, i);
        if (older && t->type == TYPE_I8 && matrices++) {
            f->t[0].bytes += t->bytes;
            f->t[0].shape[0] += (int64_t)t->bytes;
            continue;
        }
        f->t[f->n++] = *t;
        if (older && t->type == TYPE_I8)
            f->t[0] = (struct tensor){"panels", TYPE_I8, 1, {(int64_t)t->bytes}, t->data, t->bytes};
    }
}

static size_t bytes_of(const struct tensor *t)
{
    return (size_t)t->shape[0] * (t->dims == 2 ? (size_t)t->shape[1] : 1) * type_size(t->type);
}

static void apply(struct file *f, const uint8_t *change)
{
    static const enum type types[] = {TYPE_F32, TYPE_BF16, TYPE_F64, TYPE_I8};
    struct tensor *t = &f->t[change[1] % f->n], *other = &f->t[change[2] % f->n], was = *t;
    int64_t by = (int8_t)change[2] * (change[3] & 1 ? 64 : 1);
    switch (change[0] % 7) {
    case 0:
        t->type = types[change[2] % 4];
        break;
    case 1:
        t->shape[0] += by;
        break;
    case 2:
        t->shape[1] += by;
        break;
    case 3:
        t->shape[0] = t->dims == 2 ? t->shape[0] * t->shape[1] : t->shape[0] / 64;
        t->shape[1] = 64;
        t->dims = 3 - t->dims;
        break;
    case 4: /* another order */
        *t = *other;
        *other = was;
        break;
    case 5:
        t->name = change[3] & 1 ? "panels" : other->name;
        break;
    case 6:
        if (f->n > 1) *t = f->t[--f->n];
        return;
    }
    if (t->shape[0] < 0 || t->shape[1] < 0 || t->shape[0] > DATA_MOST || t->shape[1] > DATA_MOST ||
        bytes_of(t) > DATA_MOST)
        *t = was;
}

/* Header and data; returns the length of both, 0 where they do not fit. */
static size_t format(struct file *f, char *out, size_t most)
{
    size_t at = 0, len = 8;
    out[len++] = '{';
    for (int i = 0; i < f->n; i++) {
        const struct tensor *t = &f->t[i];
        size_t bytes = bytes_of(t), kept = bytes < t->bytes ? bytes : t->bytes;
        char shape[64];
        if (at + bytes > DATA_MOST || len + 256 > most) return 0;
        snprintf(shape, sizeof shape, t->dims == 2 ? "%lld,%lld" : "%lld", (long long)t->shape[0],
                 (long long)t->shape[1]);
        len += (size_t)snprintf(
            out + len, most - len,
            "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", i ? "," : "",
            t->name, tensor_dtype(t->type), shape, at, at + bytes);
        memset(f->bytes + at, 0, bytes);
        memcpy(f->bytes + at, t->data, kept);
        at += bytes;
    }
    out[len++] = '}';
    while (len % 64) out[len++] = ' ';
    f->used = at;
    for (int i = 0; i < 8; i++) out[i] = (char)((uint64_t)(len - 8) >> (8 * i));
    return len;
}

static void read_visit(struct walk *k, const char *name, enum role role, struct mat *slot, int rows,
                       int cols)
{
    (void)k, (void)name;
    size_t bytes = role_is_matrix(role) ? fuzz.cpu->op->pack_bytes(slot->type, rows, cols)
                                        : (size_t)rows * cols * sizeof(float);
    unsigned sum = 0;
    for (size_t i = 0; i < bytes; i++) sum += ((const unsigned char *)slot->p)[i];
    volatile unsigned keep = sum; /* so that the reads are not optimized away */
    (void)keep;
}

static void open_with(struct backend *be, const char *path)
{
    struct heed_error err = {0};
    struct parameters *p = NULL;
    int next = fuzz_next_fd();
    enum heed_status st = weights_open_packed(&p, be, &config, TYPE_PACKED_I8, path, &err);
    if (st) {
        must_explain(st, &err);
        must(!p && strstr(err.text, path), "a failure names the file and leaves the result alone");
    } else if (be == fuzz.cpu) {
        struct walk walk = {.visit = read_visit};
        walk_weights(&walk, &p->w, &p->config);
    }
    parameters_free(p);
    must(fuzz_next_fd() == next, "no file is left open");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fuzz_file memory;
    static struct file f;
    static char out[(1 << 15) + DATA_MOST];
    if (size == 0 || size > 1 + 4 * 32) return 0;
    begin(&f, data[0] & 1);
    for (size_t i = 1; i + 4 <= size; i += 4) apply(&f, data + i);
    size_t len = format(&f, out, 1 << 15);
    if (!len) return 0;
    memcpy(out + len, f.bytes, f.used);
    const char *path = fuzz_file_put(&memory, out, len + f.used);
    open_with(fuzz.cpu, path);
    open_with(fuzz.ref, path);
    return 0;
}
