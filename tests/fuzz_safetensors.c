/*
 * fuzz_safetensors.c - libFuzzer entry: any bytes as a safetensors file. Either a sentence comes
 * back or every byte of every tensor can be read.
 *
 * The length of the header stands in front of it, so most mutations are followed by correcting it.
 */
#include "fuzz.h"
#include "store/safetensors.h"

enum { LENGTH_BYTES = 8 };

/* Header and data, without the length: an F32 that is not aligned, a CRC, panels. */
static const char *const start[] = {
    "{\"a\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[6,14]}}abcdefghijklmn",
    "{\"__metadata__\":{\"format\":\"heed\",\"crc32\":\"f6781b24\"},"
    "\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}abcdefghijkl",
    "{\"a\":{\"dtype\":\"I8\",\"shape\":[2,4],\"data_offsets\":[0,8]},"
    "\"\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[8,8]}}abcdefgh"};

static const char *const words[] = {"{",
                                    "}",
                                    "\":",
                                    "\"dtype\"",
                                    "\"shape\"",
                                    "\"F32\"",
                                    "\"BF16\"",
                                    "\"F64\"",
                                    "\"I8\"",
                                    "\"crc32\"",
                                    "\"data_offsets\"",
                                    "\"__metadata__\"",
                                    "9223372036854775807",
                                    "4611686018427387904",
                                    "\\u0000",
                                    NULL};

/* The header ends with the last brace. */
static void set_length(uint8_t *data, size_t size)
{
    size_t end = size;
    while (end > LENGTH_BYTES && data[end - 1] != '}') end--;
    for (int i = 0; i < LENGTH_BYTES; i++)
        data[i] = (uint8_t)((uint64_t)(end - LENGTH_BYTES) >> (8 * i));
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    if (!fuzz_begin(argc, argv, words)) return 0;
    for (size_t i = 0; i < sizeof start / sizeof *start; i++) {
        uint8_t data[1024] = {0};
        size_t size = LENGTH_BYTES + strlen(start[i]);
        char name[] = {(char)('a' + i), '\0'};
        memcpy(data + LENGTH_BYTES, start[i], size - LENGTH_BYTES);
        set_length(data, size);
        fuzz_seed(name, data, size);
    }
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    size = LLVMFuzzerMutate(data, size, most);
    if (seed % 8 && size > LENGTH_BYTES) set_length(data, size);
    return size;
}

static void read_everything(const struct safetensors *s)
{
    unsigned sum = 0;
    for (int i = 0; i < safetensors_count(s); i++) {
        const struct tensor *t = safetensors_at(s, i);
        const unsigned char *byte = t->data;
        must(!t->bytes || (uintptr_t)byte % type_size(t->type) == 0, "a tensor is aligned");
        must(safetensors_find(s, t->name) == t, "a tensor is found by its name");
        for (size_t k = 0; k < t->bytes; k++) sum += byte[k];
        safetensors_drop(s, t);
    }
    volatile unsigned keep = sum; /* so that the reads are not optimized away */
    (void)keep;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fuzz_file file;
    const char *path = fuzz_file_put(&file, data, size);
    struct heed_error err = {0};
    struct safetensors *s = NULL;
    int next = fuzz_next_fd();
    enum heed_status st = safetensors_open(&s, path, &err);
    if (st) {
        must_explain(st, &err);
        must(!s && strstr(err.text, path), "a failure names the file and leaves the result alone");
    } else {
        read_everything(s);
    }
    safetensors_free(s);
    must(fuzz_next_fd() == next, "no file is left open");
    return 0;
}
