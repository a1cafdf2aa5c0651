/*
 * keys.c - API keys; see keys.h.
 */
#include "serve/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 128 }; /* of the longest key, with NULs behind a shorter one */

struct keys {
    char (*v)[KEY_BYTES]; /* [n] */
    int n;
};

static bool add(struct keys *k, const char *key, size_t n)
{
    char(*v)[KEY_BYTES] = realloc(k->v, (size_t)(k->n + 1) * sizeof *v);
    if (!v) return false;
    k->v = v;
    memset(k->v[k->n], 0, KEY_BYTES);
    memcpy(k->v[k->n++], key, n);
    return true;
}

static enum heed_status read_keys(struct keys *k, const char *path, struct heed_lines *lines,
                                  struct heed_error *err)
{
    const char *line;
    size_t n;
    enum heed_status status;
    for (int number = 1; !(status = heed_lines_next(lines, &line, &n, err)) && line; number++) {
        while (n && (line[n - 1] == ' ' || line[n - 1] == '\t')) n--;
        if (n == 0 || line[0] == '#') continue;
        if (n >= KEY_BYTES || !add(k, line, n)) {
            err->status = n >= KEY_BYTES ? HEED_EFORMAT : HEED_ENOMEM;
            snprintf(err->text, sizeof err->text,
                     "%.300s, line %d: a key has %zu bytes, expected at most %d", path, number, n,
                     KEY_BYTES - 1);
            return err->status;
        }
    }
    if (!status && k->n == 0) {
        err->status = status = HEED_EFORMAT;
        snprintf(err->text, sizeof err->text, "%.400s has no key, expected one a line", path);
    }
    return status;
}

struct keys *keys_open(const char *path, struct heed_error *err)
{
    struct keys *k = calloc(1, sizeof *k);
    struct heed_lines *lines = heed_lines_open(path, err);
    if (!k) *err = (struct heed_error){HEED_ENOMEM, "out of memory for API keys"};
    bool good = k && lines && read_keys(k, path, lines, err) == HEED_OK;
    heed_lines_free(lines);
    if (good) return k;
    keys_free(k);
    return NULL;
}

void keys_free(struct keys *k)
{
    if (!k) return;
    free(k->v);
    free(k);
}

bool keys_have(const struct keys *k, const char *text)
{
    char key[KEY_BYTES] = {0};
    size_t n = strnlen(text, KEY_BYTES - 1);
    memcpy(key, text, n);
    unsigned found = 0;
    for (int i = 0; i < k->n; i++) {
        unsigned differs = 0;
        for (int j = 0; j < KEY_BYTES; j++) differs |= (unsigned char)(k->v[i][j] ^ key[j]);
        found |= differs == 0;
    }
    return found && !text[n];
}
