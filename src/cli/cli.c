/*
 * cli.c - what the commands share; see cli.h.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/default_model.h"
#include "cli/text.h"
#include "heed.h"

/* mpirun gives its processes a pseudo-terminal as standard output, and passes on what comes. */
double cli_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool cli_terminal(int fd)
{
    return isatty(fd) && !getenv("OMPI_COMM_WORLD_SIZE");
}

static void error_print(const char *format, va_list ap)
{
    if (cli_terminal(STDERR_FILENO)) fputs("\r\x1b[K", stderr); /* erases a line of progress */
    char text[4096]; /* room for a sentence with names of files; a longer one is cut */
    int n = vsnprintf(text, sizeof text, format, ap);
    fputs("heed: ", stderr);
    if (n > 0) text_print_visible(stderr, text, strlen(text));
    fputc('\n', stderr);
}

int cli_failure(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    error_print(format, ap);
    va_end(ap);
    return CLI_FAILURE;
}

/* Ranks of a job are started with the same arguments, so all of them find the same mistake. The
 * launcher ends the job when the first has said so; the others would only repeat it. */
static void let_first_rank_speak(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!rank) rank = getenv("SLURM_PROCID");
    if (rank && atoi(rank) > 0) sleep(2);
}

int cli_misuse(const char *format, ...)
{
    va_list ap;
    let_first_rank_speak();
    va_start(ap, format);
    error_print(format, ap);
    va_end(ap);
    return CLI_MISUSE;
}

void cli_read_isa(void)
{
    const char *isa = getenv("HEED_ISA"), *device = getenv("HEED_DEVICE");
    char name[CLI_PATH_MAX];
    if (!isa || !*isa || (device && *device)) return;
    snprintf(name, sizeof name, "cpu:%s", isa);
    setenv("HEED_DEVICE", name, 1);
}

/* The variable of the environment that named the device, for an error; "": none did. */
static const char *named_by(const char *device)
{
    const char *isa = getenv("HEED_ISA");
    if (device != getenv("HEED_DEVICE")) return "";
    return isa && !strncmp(device, "cpu:", 4) && !strcmp(device + 4, isa) ? "HEED_ISA: "
                                                                          : "HEED_DEVICE: ";
}

const char *cli_device(void)
{
    const char *device = getenv("HEED_DEVICE");
    return device && *device ? device : "cpu";
}

struct heed_engine *cli_engine_open(const char *device, int threads)
{
    struct heed_error err = {0};
    struct heed_engine *e = heed_engine_open(device, threads, &err);
    if (!e) cli_failure("%s%s", named_by(device), err.text);
    return e;
}

int cli_flush(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return CLI_DONE;
    return cli_failure("cannot write to standard output: %s",
                       errno ? strerror(errno) : "an earlier write failed");
}

const char *cli_count(char out[CLI_NUMBER_MAX], int64_t n)
{
    char digits[CLI_NUMBER_MAX];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)n);
    char *p = out;
    for (int i = 0; i < len; i++) {
        *p++ = digits[i];
        int left = len - 1 - i;
        if (left > 0 && left % 3 == 0 && digits[i] != '-') *p++ = ',';
    }
    *p = '\0';
    return out;
}

int64_t cli_weights_bytes(const char *dir)
{
    char path[CLI_PATH_MAX];
    struct stat info;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    return stat(path, &info) == 0 ? (int64_t)info.st_size : 0;
}

const char *cli_duration(char out[CLI_NUMBER_MAX], double seconds)
{
    enum { MINUTE = 60, HOUR = 60 * MINUTE, DAY = 24 * HOUR };
    /* the estimate of a training that makes no progress is infinite */
    if (!(seconds < 100.0 * 365 * DAY)) return strcpy(out, "very long");
    long s = seconds > 0 ? (long)(seconds + 0.5) : 0;
    if (s < MINUTE) {
        snprintf(out, CLI_NUMBER_MAX, "%lds", s);
    } else if (s < HOUR) {
        snprintf(out, CLI_NUMBER_MAX, "%ldm %02lds", s / MINUTE, s % MINUTE);
    } else if (s < DAY) {
        snprintf(out, CLI_NUMBER_MAX, "%ldh %02ldm", s / HOUR, s % HOUR / MINUTE);
    } else {
        snprintf(out, CLI_NUMBER_MAX, "%ldd %02ldh", s / DAY, s % DAY / HOUR);
    }
    return out;
}
