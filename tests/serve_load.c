/*
 * serve_load.c - posts each line of a file to a server, by many clients at once, and writes the
 * answers in the order of the lines: a status, a tab and the body for each.
 *
 * usage: serve_load PORT PATH CLIENTS RATE < LINES > ANSWERS
 *
 * RATE: requests a second, 0: as fast as they are answered. Prints how many were answered, and how
 * fast, on stderr. A request whose connection was closed has status 0.
 */
#include "../bench/http_load.h"

static char **read_lines(int *n)
{
    char **v = NULL, *line = NULL;
    size_t cap = 0;
    ssize_t len;
    for (*n = 0; (len = getline(&line, &cap, stdin)) > 0; (*n)++) {
        if (line[len - 1] == '\n') line[len - 1] = '\0';
        v = realloc(v, (size_t)(*n + 1) * sizeof *v);
        if (!v || !(v[*n] = strdup(line))) abort();
    }
    free(line);
    return v;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fputs("usage: serve_load PORT PATH CLIENTS RATE < LINES > ANSWERS\n", stderr);
        return 2;
    }
    int n, good = 0;
    char **line = read_lines(&n);
    struct http_load l = {.port = atoi(argv[1]),
                          .path = argv[2],
                          .type = "application/json",
                          .body = (const char *const *)line,
                          .n = n,
                          .clients = atoi(argv[3]),
                          .rate = atof(argv[4])};
    http_load_run(&l);
    for (int i = 0; i < n; i++) {
        good += l.status[i] == 200;
        printf("%d\t%s\n", l.status[i], l.answer[i] ? l.answer[i] : "");
    }
    double p99 = http_load_quantile(&l, 0.99), p50 = http_load_quantile(&l, 0.5);
    fprintf(stderr, "%d of %d in %.2f s, %.1f a second; p50 %.1f ms, p99 %.1f ms\n", good, n,
            l.wall, n / l.wall, p50 * 1e3, p99 * 1e3);
    http_load_release(&l);
    for (int i = 0; i < n; i++) free(line[i]);
    free(line);
    return 0;
}
