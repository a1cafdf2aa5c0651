/*
 * default_model.c - the model that comes with the program; see default_model.h.
 */
#include "cli/default_model.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The directory that the program lies in, without links; "." where that cannot be told. */
static void own_directory(char path[CLI_PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", path, CLI_PATH_MAX - 1);
    path[n > 0 ? n : 0] = '\0';
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
