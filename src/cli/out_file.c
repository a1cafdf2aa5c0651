/*
 * out_file.c - a file that a command writes; see out_file.h.
 */
#include "cli/out_file.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

static int fail(struct out_file *f)
{
    int why = errno;
    out_file_drop(f);
    return cli_failure("cannot write %s: %s", f->path, strerror(why));
}

int out_file_open(struct out_file *f, const char *path)
{
    struct stat there;
    bool exists = stat(path, &there) == 0, special = exists && !S_ISREG(there.st_mode);
    *f = (struct out_file){.path = path};
    if (strlen(path) + sizeof ".tmp" > sizeof f->tmp) {
        errno = ENAMETOOLONG;
        return fail(f);
    }
    if (!special) snprintf(f->tmp, sizeof f->tmp, "%s.tmp", path);
    f->to = fopen(special ? path : f->tmp, "w");
    return f->to ? CLI_DONE : fail(f);
}

int out_file_finish(struct out_file *f)
{
    errno = 0;
    bool good = fflush(f->to) == 0 && !ferror(f->to) && (!f->tmp[0] || fsync(fileno(f->to)) == 0);
    int why = errno;
    if (fclose(f->to) != 0 && good) {
        good = false;
        why = errno;
    }
    f->to = NULL;
    errno = why;
    if (!good || (f->tmp[0] && rename(f->tmp, f->path) != 0)) return fail(f);
    f->tmp[0] = '\0';
    return CLI_DONE;
}

void out_file_drop(struct out_file *f)
{
    if (f->to) fclose(f->to);
    if (f->tmp[0]) unlink(f->tmp);
    f->to = NULL;
    f->tmp[0] = '\0';
}

int out_file_check(const char *out, const char *option, const char *input)
{
    struct stat a, b;
    bool same = out && stat(out, &a) == 0 && stat(input, &b) == 0 && S_ISREG(a.st_mode) &&
                a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    return same ? cli_misuse("--out is %s, which is read as %s, expected another file", out, option)
                : CLI_DONE;
}
