/*
 * test_worker_fault.c - a fault inside an OpenMP region ends a test program at once, with a message
 * and a status that says failure (end_on_fault.c). The program runs itself, with the name of a
 * fault as its argument, and watches.
 */
#include <assert.h>
#include <omp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char *fault; /* what the faulting program was asked for */

static void fail_here(void)
{
    if (!strcmp(fault, "assert")) assert(!"what must not be");
    raise(!strcmp(fault, "illegal") ? SIGILL : SIGSEGV);
}

/* Everyone else waits at a barrier, as OpenMP's workers do at the end of a region. Under a limit of
 * one thread the leader is the last of the team too. */
static void faulting_test(void **state)
{
    (void)state;
#pragma omp parallel num_threads(2)
    {
        int last = omp_get_num_threads() - 1;
        if (omp_get_thread_num() == (strcmp(fault, "leader") ? last : 0)) fail_here();
#pragma omp barrier
    }
}

static int faulting_program(const char *name)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(faulting_test),
                                       cmocka_unit_test(faulting_test)};
    fault = name;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ---- the one that watches ---- */

enum { LIMIT_S = 60 }; /* a machine may be busy; a program that hangs takes longer in any case */

static void watch(const char *name, const char *message)
{
    char path[4096], command[4200], output[4096] = "";
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    assert_true(n > 0);
    path[n] = '\0';
    snprintf(command, sizeof command, "ulimit -c 0; exec timeout -s KILL %d '%s' %s 2>&1", LIMIT_S,
             path, name);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t got = fread(output, 1, sizeof output - 1, f);
    output[got] = '\0';
    int status = pclose(f);
    if (!WIFEXITED(status) && WTERMSIG(status) == SIGKILL)
        fail_msg("%s: still running after %d s", name, LIMIT_S);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL)
        fail_msg("%s: still running after %d s", name, LIMIT_S);
    if (status == 0) fail_msg("%s: its status says success", name);
    if (!strstr(output, message)) fail_msg("%s: says '%s', expected '%s'", name, output, message);
}

/* What this program writes of a SIGSEGV, and what sanitizers write */
#define SEGV_SAID "SEGV"

static void test_worker(void **state)
{
    (void)state;
    watch("worker", SEGV_SAID);
}
static void test_leader(void **state)
{
    (void)state;
    watch("leader", SEGV_SAID);
}
static void test_illegal(void **state)
{
    (void)state;
    watch("illegal", "SIGILL");
}
static void test_assert(void **state)
{
    (void)state;
    watch("assert", "what must not be");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worker),
        cmocka_unit_test(test_leader),
        cmocka_unit_test(test_illegal),
        cmocka_unit_test(test_assert),
    };
    if (argc > 1) return faulting_program(argv[1]);
    if (getenv("HEED_TEST_EMULATED")) {
        puts("skipped: this program cannot start itself without its emulator");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
