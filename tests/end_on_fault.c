/*
 * end_on_fault.c - makes a fault end a test program at once; linked into all of them.
 *
 * While a test runs, cmocka catches faults (SIGSEGV, SIGILL and their kind) and jumps back to its
 * main loop. When the fault is inside an OpenMP region, in a worker thread or in the thread that
 * leads the region, that jump leaves the other threads at a barrier, and the program waits for them
 * for ever. So signal(), by which cmocka sets its handlers, is replaced here: the handlers of
 * faults stay as they were set at the start of the program, and those end it.
 */
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static const struct fault {
    int signal;
    const char *text;
} faults[] = {
    {SIGSEGV, "fault: invalid memory access (SIGSEGV); the test program ends here\n"},
    {SIGILL, "fault: illegal instruction (SIGILL); the test program ends here\n"},
    {SIGFPE, "fault: arithmetic exception (SIGFPE); the test program ends here\n"},
    {SIGBUS, "fault: bus error (SIGBUS); the test program ends here\n"},
    {SIGSYS, "fault: bad system call (SIGSYS); the test program ends here\n"},
};
enum { FAULTS = sizeof faults / sizeof *faults };

static const struct fault *fault_find(int number)
{
    for (int i = 0; i < FAULTS; i++)
        if (faults[i].signal == number) return faults + i;
    return NULL;
}

/* Prints the name of the signal. The handler is installed for one use: on return the instruction
 * that faulted runs again, and the default action ends the process. raise() also ends it where the
 * signal was sent and no instruction faulted. */
static void tell(int number)
{
    const char *text = fault_find(number)->text;
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written;
    raise(number);
}

/* The handlers of a sanitizer, which were installed before, are kept, because they print more. */
__attribute__((constructor)) static void faults_end_the_program(void)
{
    for (int i = 0; i < FAULTS; i++) {
        struct sigaction old, now = {.sa_handler = tell, .sa_flags = (int)SA_RESETHAND};
        sigaction(faults[i].signal, NULL, &old);
        if (!(old.sa_flags & SA_SIGINFO) && old.sa_handler == SIG_DFL)
            sigaction(faults[i].signal, &now, NULL);
    }
}

/* Like the C library's, except that it ignores requests for the signals of faults. */
__attribute__((visibility("default"))) void (*signal(int number, void (*handler)(int)))(int)
{
    struct sigaction old, now = {.sa_handler = handler, .sa_flags = SA_RESTART};
    if (fault_find(number)) return SIG_DFL;
    return sigaction(number, &now, &old) ? SIG_ERR : old.sa_handler;
}
