/*
 * place.h - a directory for the files of one test, made before the test and removed after it.
 */
#ifndef HEED_TESTS_PLACE_H
#define HEED_TESTS_PLACE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"

struct place {
    char dir[64];
    char path[FILE_PATH_MAX]; /* the last path that `at` was asked for */
};

/* The path of a file in the directory; valid until the next call. */
static inline const char *at(struct place *p, const char *name)
{
    struct heed_error err;
    assert_int_equal(file_join(p->path, sizeof p->path, p->dir, name, &err), HEED_OK);
    return p->path;
}

static inline int place_make(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    strcpy(p->dir, "/tmp/heed-test-XXXXXX");
    *state = p;
    return mkdtemp(p->dir) ? 0 : -1;
}

static inline int place_remove(void **state)
{
    struct place *p = *state;
    struct heed_error err;
    enum heed_status st = file_remove_dir(p->dir, &err);
    free(p);
    return st == HEED_OK ? 0 : -1;
}

#endif
