/*
 * interrupt.c - long work that a signal asks to end; see interrupt.h.
 */
#include "cli/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"

/* Number of the signal that asked for a stop; 0: none. A signal handler takes no argument of ours,
 * hence the global, and it may run in any thread, hence the atomic. The handler calls nothing of
 * the library, since what it would stop may be freed by then. */
static atomic_int stop_signal;

/* timeout(1) and other programs send one signal twice, to the process and to its process group. So
 * only a signal that comes a second or more after the first ends the program at once. */
static void on_signal(int number)
{
    static _Atomic int64_t asked; /* time of the first signal in milliseconds; 0: not set yet */
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t now = t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
    if (!stop_signal) {
        asked = now;
        stop_signal = number;
    } else if (asked && now - asked >= 1000) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

/* A signal that was ignored when the program started stays ignored: a shell starts background jobs
 * like that, because Ctrl-C is meant for the job in the foreground. */
static void catch_signal(int number)
{
    struct sigaction before, a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&a.sa_mask);
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler == SIG_IGN) return;
    sigaction(number, &a, NULL);
}

void interrupt_catch(void)
{
    catch_signal(SIGINT);
    catch_signal(SIGTERM);
    catch_signal(SIGHUP);
}

int interrupt_number(void)
{
    return stop_signal;
}

int interrupt_end(void)
{
    int number = stop_signal;
    signal(number, SIG_DFL);
    raise(number);
    return CLI_FAILURE;
}

/* Prints a word of the command line, quoted where a shell would not read it back as one word. */
static void print_quoted(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./=:,+@%";
    if (*word && word[strspn(word, plain)] == '\0') {
        fputs(word, stderr);
        return;
    }
    fputc('\'', stderr);
    for (; *word; word++) {
        if (*word == '\'') {
            fputs("'\\''", stderr);
        } else {
            fputc(*word, stderr);
        }
    }
    fputc('\'', stderr);
}

void interrupt_say_how_to_go_on(int argc, char **argv, const char *extra)
{
    fputs("to go on:\n ", stderr);
    for (int i = 0; i < argc; i++) {
        fputc(' ', stderr);
        print_quoted(argv[i]);
        if (i == 1 && extra) fprintf(stderr, " %s", extra);
    }
    fputc('\n', stderr);
}
