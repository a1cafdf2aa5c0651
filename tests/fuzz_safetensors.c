/*
 * fuzz_safetensors.c - libFuzzer entry: any bytes as a safetensors file. Either a sentence comes
 * back or every byte of every tensor can be read.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
