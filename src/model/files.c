/*
 * files.c - which directory a model may be written to; see files.h.
 */
#include "model/files.h"

#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"

enum { PATH = 4096 };

/* By what it is, not by its name: there may be links and dots. */
static bool same_dir(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool has(const char *dir, const char *name)
{
    char path[PATH];
    return file_join(path, sizeof path, dir, name, NULL) == HEED_OK && file_exists(path);
}

/* The directory that holds a checkpoint among others. */
static bool holds_checkpoint(const char *out, const char *dir)
{
    char parent[PATH];
    return has(dir, "trainer.json") &&
           file_join(parent, sizeof parent, dir, "..", NULL) == HEED_OK && same_dir(out, parent);
}

enum heed_status files_check_out(const char *const *dirs, int n, const char *out,
                                 struct heed_error *err)
{
    if (!*out) return error_set(err, HEED_EARG, "no output directory was given");
    for (int i = 0; i < n; i++) {
        if (same_dir(out, dirs[i]))
            return error_set(err, HEED_EARG,
                             "%s is %s, which would be overwritten: choose another directory", out,
                             dirs[i]);
        if (holds_checkpoint(out, dirs[i]))
            return error_set(err, HEED_EARG,
                             "%s holds the checkpoints of a run: choose another directory", out);
    }
    if (has(out, "checkpoints") || has(out, "trainer.json"))
        return error_set(err, HEED_EARG, "%s belongs to a training run: choose another directory",
                         out);
    return HEED_OK;
}
