/*
 * fuzz_safetensors.c - libFuzzer entry: any bytes as a safetensors file. Either a sentence comes
 * back or every byte of every tensor can be read.
 *
 * Bytes at random are never JSON of the right length, so two small files are given to start from,
 * and most changes to them get the length of their header right.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most); /* libFuzzer's own */

enum { LENGTH_BYTES = 8 };

/* Header and data, without the length: an F32 that is not aligned, and a CRC. */
static const char *const start[] = {
    "{\"a\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[6,14]}}abcdefghijklmn",
    "{\"__metadata__\":{\"format\":\"heed\",\"crc32\":\"f6781b24\"},"
    "\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}abcdefghijkl"};

/* The header ends with the last brace. */
static void set_length(uint8_t *data, size_t size)
{
    size_t end = size;
    while (end > LENGTH_BYTES && data[end - 1] != '}') end--;
    for (int i = 0; i < LENGTH_BYTES; i++)
        data[i] = (uint8_t)((uint64_t)(end - LENGTH_BYTES) >> (8 * i));
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    const char *text = start[seed / 8 % 2];
    size_t len = strlen(text);
    if (size <= LENGTH_BYTES && LENGTH_BYTES + len <= most) {
        memcpy(data + LENGTH_BYTES, text, len);
        size = LENGTH_BYTES + len;
    } else {
        size = LLVMFuzzerMutate(data, size, most);
    }
    if (seed % 8 && size > LENGTH_BYTES) set_length(data, size);
    return size;
}

static void read_everything(const struct safetensors *s)
{
    unsigned sum = 0;
    for (int i = 0; i < safetensors_count(s); i++) {
        const struct tensor *t = safetensors_at(s, i);
        const unsigned char *byte = t->data;
        if (t->bytes && (uintptr_t)byte % type_size(t->type)) abort();
        if (safetensors_find(s, t->name) != t) abort();
        for (size_t k = 0; k < t->bytes; k++) sum += byte[k];
    }
    volatile unsigned keep = sum; /* so that the reads are not optimized away */
    (void)keep;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FILE *file = tmpfile();
    if (!file || fwrite(data, 1, size, file) != size || fflush(file) != 0) abort();
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(file));

    struct heed_error err = {0};
    struct safetensors *s = NULL;
    if (safetensors_open(&s, path, &err) == HEED_OK)
        read_everything(s);
    else if (s || !strstr(err.text, path))
        abort();
    safetensors_free(s);
    fclose(file);
    return 0;
}
