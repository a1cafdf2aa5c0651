/*
 * default_model.c - the model that comes with the program; see default_model.h.
 */
#define _GNU_SOURCE /* program_invocation_name */
#include "cli/default_model.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* The file that a shell runs for a word: the word itself where it has a slash, else the first of
 * that name in PATH. */
static bool find_program(const char *word, char path[CLI_PATH_MAX])
{
    if (strchr(word, '/')) return realpath(word, path) != NULL;
    const char *p = getenv("PATH");
    while (p && *p) {
        char file[CLI_PATH_MAX];
        size_t n = strcspn(p, ":");
        int len = snprintf(file, sizeof file, "%.*s/%s", (int)n, p, word);
        if (len < CLI_PATH_MAX && access(file, X_OK) == 0) return realpath(file, path) != NULL;
        p += n + (p[n] == ':');
    }
    return false;
}

/* The directory of the program's file, with symbolic links resolved; "." where it is not known. The
 * file is /proc/self/exe, with two exceptions: where there is no /proc, and where the user ran the
 * dynamic loader with the program as its argument. Then /proc/self/exe is the loader, and AT_BASE,
 * the address at which the kernel loads a loader for the program, is 0. In both cases the program
 * is looked up by its name, as a shell does. */
static void own_directory(char path[CLI_PATH_MAX])
{
    ssize_t n = getauxval(AT_BASE) ? readlink("/proc/self/exe", path, CLI_PATH_MAX - 1) : -1;
    path[n > 0 ? n : 0] = '\0';
    if (n <= 0 && !find_program(program_invocation_name, path)) path[0] = '\0';
    char *slash = strrchr(path, '/');
    if (slash) {
        *slash = '\0';
    } else {
        strcpy(path, ".");
    }
}

const char *default_model(char path[CLI_PATH_MAX])
{
    static const char *const place[] = {"models/default", "../share/heed/default"};
    enum { PLACES = sizeof place / sizeof place[0] };
    char own[CLI_PATH_MAX], file[CLI_PATH_MAX + 32];
    own_directory(own);
    for (int i = 0; i < PLACES; i++) {
        int n = snprintf(path, CLI_PATH_MAX, "%s/%s", own, place[i]);
        snprintf(file, sizeof file, "%s/config.json", path);
        if (n < CLI_PATH_MAX && access(file, R_OK) == 0) return path;
    }
    return NULL;
}
