/*
 * access_log.c - a line for each request; see access_log.h.
 */
#include "serve/access_log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct access_log {
    const char *path;
    pthread_mutex_t lock; /* of the file, which one thread writes and another opens again */
    FILE *f;
};

static FILE *open_file(const char *path, struct heed_error *err)
{
    FILE *f = strcmp(path, "-") ? fopen(path, "ae") : stdout;
    if (f) return f;
    err->status = HEED_EIO;
    snprintf(err->text, sizeof err->text, "cannot write %.300s: %s", path, strerror(errno));
    return NULL;
}

static void close_file(FILE *f)
{
    if (f && f != stdout) fclose(f);
}

struct access_log *access_log_open(const char *path, struct heed_error *err)
{
    struct access_log *l = calloc(1, sizeof *l);
    if (!l) {
        *err = (struct heed_error){HEED_ENOMEM, "out of memory for the access log"};
        return NULL;
    }
    l->path = path;
    pthread_mutex_init(&l->lock, NULL);
    l->f = open_file(path, err);
    if (l->f) return l;
    access_log_free(l);
    return NULL;
}

void access_log_free(struct access_log *l)
{
    if (!l) return;
    close_file(l->f);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

enum heed_status access_log_reopen(struct access_log *l, struct heed_error *err)
{
    if (!l) return HEED_OK;
    FILE *fresh = open_file(l->path, err);
    if (!fresh) return err->status;
    pthread_mutex_lock(&l->lock);
    close_file(l->f);
    l->f = fresh;
    pthread_mutex_unlock(&l->lock);
    return HEED_OK;
}

/* Characters that would end the line or hide in it are written as %XX. */
static void write_path(FILE *f, const char *path)
{
    for (; *path; path++) {
        unsigned char c = (unsigned char)*path;
        if (c <= ' ' || c >= 0x7f || c == '%') {
            fprintf(f, "%%%02X", c);
        } else {
            putc(c, f);
        }
    }
}

void access_log_write(struct access_log *l, const char *address, const struct call *c, int status,
                      double seconds)
{
    if (!l) return;
    char when[32];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    pthread_mutex_lock(&l->lock);
    fprintf(l->f, "%s %s ", when, address);
    write_path(l->f, c->method);
    putc(' ', l->f);
    write_path(l->f, c->path);
    fprintf(l->f, " %d %zu %.3f\n", status, c->reply.n, seconds);
    fflush(l->f);
    pthread_mutex_unlock(&l->lock);
}
