/*
 * access_log.c - a line for each request; see access_log.h.
 */
#include "serve/access_log.h"

#include <time.h>

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

void access_log_write(FILE *f, const char *address, const struct call *c, int status,
                      double seconds)
{
    if (!f) return;
    char when[32];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    fprintf(f, "%s %s ", when, address);
    write_path(f, c->method);
    putc(' ', f);
    write_path(f, c->path);
    fprintf(f, " %d %zu %.3f\n", status, c->reply.n, seconds);
    fflush(f);
}
