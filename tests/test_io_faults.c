/*
 * test_io_faults.c - makes each system call on a file fail, one after another.
 *
 * These calls are defined here and replace the C library's. An operation is run again and again;
 * each time one more of its calls succeeds before one fails, until the operation ends without
 * reaching that one. Either it succeeds with the right bytes, or it fails with a sentence; then
 * older files are complete, and the next run without faults gives the same bytes as if nothing had
 * happened. Power cuts are another matter: see test_kill.sh.
 *
 * With HEED_TEST_ALL every single call fails once; without it the steps grow.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "task.h"

/* ---- faults ---- */

/* Kinds of calls. */
enum call { READS = 1, WRITES = 2, TRANSFERS = 4 };

static const struct kind {
    const char *name;
    int error;      /* what the call sets errno to; 0: it does a part of what was asked for */
    unsigned calls; /* kinds of calls that can have this fault */
    bool stays;     /* every later call fails as well */
} kinds[] = {
    {"short reads and writes", 0, TRANSFERS, true},
    {"interrupted calls", EINTR, TRANSFERS, false},
    {"a read error", EIO, READS, false},
    {"a write error", EIO, WRITES, false},
    {"a disk that is full", ENOSPC, WRITES, true},
    {"a disk that is gone", EIO, READS | WRITES, true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static struct {
    atomic_bool armed;
    const struct kind *kind;
    atomic_long left; /* calls until the one that fails */
    atomic_bool fired;
} fault;

/* Only calls from heed are counted, which is linked into this program. */
extern char __executable_start[], etext[];

/* Whether this call is to fail; sets errno. */
static bool strikes(unsigned call, const void *caller)
{
    if (!atomic_load(&fault.armed) || !(call & fault.kind->calls)) return false;
    if ((const char *)caller < __executable_start || (const char *)caller >= etext) return false;
    long left = atomic_fetch_sub(&fault.left, 1);
    if (left > 1 || (left < 1 && !fault.kind->stays)) return false;
    atomic_store(&fault.fired, true);
    errno = fault.kind->error;
    return true;
}

#define EXPORTED __attribute__((visibility("default"), noinline))
#define CALLER   __builtin_return_address(0)

EXPORTED int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (strikes(flags & O_CREAT ? WRITES : READS, CALLER)) return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* A short read or write transfers a part, at least one byte. */
EXPORTED ssize_t read(int fd, void *data, size_t n)
{
    if (strikes(READS | TRANSFERS, CALLER)) {
        if (errno) return -1;
        n = (n + 2) / 3;
    }
    return syscall(SYS_read, fd, data, n);
}

EXPORTED ssize_t pread(int fd, void *data, size_t n, off_t at)
{
    if (strikes(READS | TRANSFERS, CALLER)) {
        if (errno) return -1;
        n = (n + 2) / 3;
    }
    return syscall(SYS_pread64, fd, data, n, at);
}

EXPORTED ssize_t write(int fd, const void *data, size_t n)
{
    if (strikes(WRITES | TRANSFERS, CALLER)) {
        if (errno) return -1;
        n = (n + 2) / 3;
    }
    return syscall(SYS_write, fd, data, n);
}

/* fsync does nothing here, which saves time. It may be interrupted, but cannot be done in part. */
EXPORTED int fsync(int fd)
{
    (void)fd;
    return strikes(WRITES | TRANSFERS, CALLER) && errno ? -1 : 0;
}

/* The C library's own; errno is left alone at the end of a directory. */
EXPORTED struct dirent *readdir(DIR *d)
{
    struct dirent *(*next)(DIR *);
    *(void **)&next = dlsym(RTLD_NEXT, "readdir");
    return strikes(READS, CALLER) ? NULL : next(d);
}

/* Linux closes a file in any case. */
EXPORTED int close(int fd)
{
    int result = (int)syscall(SYS_close, fd);
    return strikes(WRITES, CALLER) ? -1 : result;
}

EXPORTED int rename(const char *from, const char *to)
{
    return strikes(WRITES, CALLER) ? -1 : (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}

EXPORTED int link(const char *from, const char *to)
{
    return strikes(WRITES, CALLER) ? -1 : (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}

EXPORTED int unlink(const char *path)
{
    return strikes(WRITES, CALLER) ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

EXPORTED int unlinkat(int fd, const char *path, int flags)
{
    return strikes(WRITES, CALLER) ? -1 : (int)syscall(SYS_unlinkat, fd, path, flags);
}

EXPORTED int rmdir(const char *path)
{
    return strikes(WRITES, CALLER) ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}

EXPORTED int mkdir(const char *path, mode_t mode)
{
    return strikes(WRITES, CALLER) ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

EXPORTED int flock(int fd, int how)
{
    return strikes(READS, CALLER) ? -1 : (int)syscall(SYS_flock, fd, how);
}

EXPORTED void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    if (fd >= 0 && strikes(READS, CALLER)) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
}

/* ---- operations ---- */

static char run_dir[192], want_dir[192], model_dir[192], old_model[192], new_model[192],
    vocab_old[192], vocab_new[192], pairs[192];

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *where)
{
    (void)s, (void)kind, (void)where;
    return remove(path);
}

static void remove_tree(const char *dir)
{
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void copy_file(const char *from, const char *to)
{
    struct heed_error err = {0};
    char *data;
    size_t n;
    if (file_read(from, 1 << 26, &data, &n, &err) ||
        file_write(to, &(struct file_part){data, n}, 1, &err))
        fail_msg("%s", err.text);
    free(data);
}

static const char *in(const char *dir, const char *name)
{
    static char path[8][512];
    static int next;
    char *p = path[next++ % 8];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static bool same_file(const char *a, const char *b)
{
    struct heed_error err = {0};
    char *data;
    size_t n;
    bool same = false;
    if (file_read(b, 1 << 26, &data, &n, &err) ||
        file_same(a, (struct file_part){data, n}, &same, &err))
        fail_msg("%s", err.text);
    free(data);
    return same;
}

static void must_load(const char *dir)
{
    struct heed_error err = {0};
    struct heed_engine *e = heed_engine_open("ref", 1, &err);
    struct heed_model *m = e ? heed_model_load(e, dir, HEED_WEIGHTS_AS_STORED, &err) : NULL;
    if (!m) fail_msg("%s", err.text);
    heed_model_free(m);
    heed_engine_free(e);
}

/* ---- training: three steps with a checkpoint after each, and validations ---- */

enum { STEPS = 3 };

/* The training text has a weight, so that it is unpacked and read through an index. */
static const double weight[] = {2};

static struct heed_train_options training(const char *out)
{
    static const char *list[1];
    struct heed_train_options o = options(out);
    list[0] = pairs;
    o.train = o.valid = (struct heed_corpus){.src = list, .n = 1, .weight = weight};
    o.batch_tokens = 64;
    o.steps = STEPS;
    o.save_every = o.valid_every = 1;
    o.valid_bleu = false;
    o.keep = 2;
    o.resume = true;
    return o;
}

static enum heed_status run_training(struct heed_error *err)
{
    struct heed_train_options o = training(run_dir);
    return train_on("cpu", &o, 1, err);
}

static void no_run(void)
{
    remove_tree(run_dir);
}

/* Every directory called step-N is complete: its files are those of an undisturbed run at this
 * step. */
static void check_checkpoints(void)
{
    static const char *const name[] = {"trainer.json", "state.safetensors", "model.safetensors",
                                       "config.json", "vocab.model"};
    for (int step = 1; step <= STEPS; step++) {
        char dir[64];
        snprintf(dir, sizeof dir, "checkpoints/step-%08d", step);
        if (!file_exists(in(run_dir, dir))) continue;
        for (int i = 0; i < 5; i++) {
            char file[128];
            snprintf(file, sizeof file, "%s/%s", dir, name[i]);
            if (!same_file(in(run_dir, file), in(want_dir, file)))
                fail_msg("%s/%s is not what it should be", run_dir, file);
        }
    }
    if (file_exists(in(run_dir, "model.safetensors"))) must_load(run_dir);
    if (file_exists(in(run_dir, "best/model.safetensors"))) must_load(in(run_dir, "best"));
}

/* Without faults the run is resumed and ends with the same bytes. */
static void check_training(bool done)
{
    struct heed_error err = {0};
    check_checkpoints();
    if (!done && run_training(&err)) fail_msg("after the fault: %s", err.text);
    check_checkpoints();
    assert_true(same_file(in(run_dir, "model.safetensors"), in(want_dir, "model.safetensors")));
    assert_true(file_exists(in(run_dir, "checkpoints/step-00000003")));
    assert_true(
        same_file(in(run_dir, "best/model.safetensors"), in(want_dir, "best/model.safetensors")));
}

/* ---- files that replace older ones ---- */

static void old_model_back(void)
{
    static const char *const name[] = {"config.json", "vocab.model", "model.safetensors"};
    remove_tree(model_dir);
    mkdir(model_dir, 0777);
    for (int i = 0; i < 3; i++) copy_file(in(old_model, name[i]), in(model_dir, name[i]));
}

static void check_model(bool done)
{
    const char *weights = in(model_dir, "model.safetensors");
    must_load(model_dir);
    assert_true(same_file(weights, in(new_model, "model.safetensors")) ||
                (!done && same_file(weights, in(old_model, "model.safetensors"))));
}

static char of_run[2][256];

static enum heed_status run_average(struct heed_error *err)
{
    return heed_average((const char *[]){of_run[0], of_run[1]}, 2, model_dir, err);
}

static enum heed_status run_quantize(struct heed_error *err)
{
    return heed_quantize(of_run[0], HEED_WEIGHTS_BF16, model_dir, err);
}

static void old_vocab_back(void)
{
    copy_file(vocab_old, in(model_dir, "vocab.model"));
}

static enum heed_status run_vocab(struct heed_error *err)
{
    struct heed_tokenizer_options o = {.vocab_size = 270};
    return heed_tokenizer_train((const char *[]){pairs}, 1, &o, in(model_dir, "vocab.model"), err);
}

static void check_vocab(bool done)
{
    const char *vocab = in(model_dir, "vocab.model");
    assert_true(same_file(vocab, vocab_new) || (!done && same_file(vocab, vocab_old)));
}

/* ---- reading alone ---- */

static enum heed_status run_load(struct heed_error *err)
{
    struct heed_engine *e = heed_engine_open("ref", 1, err);
    struct heed_model *m = e ? heed_model_load(e, old_model, HEED_WEIGHTS_AS_STORED, err) : NULL;
    heed_model_free(m);
    heed_engine_free(e);
    return m ? HEED_OK : err->status;
}

static void nothing(void)
{
}

static void check_nothing(bool done)
{
    (void)done;
}

/* ---- the test ---- */

static const struct operation {
    const char *name;
    void (*prepare)(void);
    enum heed_status (*run)(struct heed_error *err);
    void (*check)(bool done);
} operations[] = {
    {"train", no_run, run_training, check_training},
    {"average", old_model_back, run_average, check_model},
    {"quantize", old_model_back, run_quantize, check_model},
    {"train a vocabulary", old_vocab_back, run_vocab, check_vocab},
    {"load a model", nothing, run_load, check_nothing},
};

/* Runs an operation whose n-th call of a kind fails; returns false where it has fewer. */
static bool run_with(const struct operation *op, const struct kind *kind, long n)
{
    struct heed_error err = {0};
    op->prepare();
    fault.kind = kind;
    atomic_store(&fault.left, n);
    atomic_store(&fault.fired, false);
    atomic_store(&fault.armed, true);
    enum heed_status st = op->run(&err);
    atomic_store(&fault.armed, false);
    bool fired = atomic_load(&fault.fired);
    if (getenv("HEED_TEST_SAY")) printf("%s, %s, %ld: %s\n", op->name, kind->name, n, err.text);
    if (st && (st != err.status || !err.text[0] || !fired))
        fail_msg("%s, %s at call %ld: status %d, error %d \"%s\"", op->name, kind->name, n, st,
                 err.status, err.text);
    if (st && (!kind->error || kind->error == EINTR))
        fail_msg("%s does not stand %s at call %ld: %s", op->name, kind->name, n, err.text);
    op->check(!st);
    return fired;
}

static void run_all(const struct operation *op)
{
    bool all = getenv("HEED_TEST_ALL");
    for (int k = 0; k < KINDS; k++) {
        long n = 1, runs = 0;
        while (run_with(op, &kinds[k], n)) {
            n += all ? 1 : 1 + n / 6;
            runs++;
        }
        printf("%s: %ld times %s, the last at call %ld\n", op->name, runs, kinds[k].name, n - 1);
    }
}

static void test_training(void **state)
{
    (void)state;
    run_all(&operations[0]);
}

static void test_average(void **state)
{
    (void)state;
    struct heed_error err = {0};
    old_model_back();
    if (run_average(&err)) fail_msg("%s", err.text);
    remove_tree(new_model);
    assert_int_equal(rename(model_dir, new_model), 0);
    run_all(&operations[1]);
}

static void test_quantize(void **state)
{
    (void)state;
    struct heed_error err = {0};
    old_model_back();
    if (run_quantize(&err)) fail_msg("%s", err.text);
    remove_tree(new_model);
    assert_int_equal(rename(model_dir, new_model), 0);
    run_all(&operations[2]);
}

static void test_vocab(void **state)
{
    (void)state;
    struct heed_error err = {0};
    old_model_back();
    if (run_vocab(&err)) fail_msg("%s", err.text);
    copy_file(in(model_dir, "vocab.model"), vocab_new);
    run_all(&operations[3]);
}

static void test_reading(void **state)
{
    (void)state;
    run_all(&operations[4]);
}

static int make_things(void **state)
{
    struct heed_error err = {0};
    if (set_up(state)) return -1;
    snprintf(run_dir, sizeof run_dir, "%s/run", place.dir);
    snprintf(want_dir, sizeof want_dir, "%s/want", place.dir);
    snprintf(model_dir, sizeof model_dir, "%s/model", place.dir);
    snprintf(old_model, sizeof old_model, "%s/want/best", place.dir);
    snprintf(new_model, sizeof new_model, "%s/new", place.dir);
    snprintf(vocab_old, sizeof vocab_old, "%s/vocab.model", place.dir);
    snprintf(vocab_new, sizeof vocab_new, "%s/vocab.new", place.dir);
    snprintf(pairs, sizeof pairs, "%s/pairs.gz", place.dir);
    for (int i = 0; i < 2; i++)
        snprintf(of_run[i], sizeof of_run[i], "%s/checkpoints/step-%08d", want_dir, i + 1);
    char command[768];
    snprintf(command, sizeof command, "paste %s %s | head -n 40 | gzip > %s", place.src, place.tgt,
             pairs);
    if (system(command)) return -1;
    struct heed_train_options o = training(want_dir);
    o.keep = STEPS;
    if (train_on("cpu", &o, 1, &err)) fail_msg("%s", err.text);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training), cmocka_unit_test(test_average),
        cmocka_unit_test(test_quantize), cmocka_unit_test(test_vocab),
        cmocka_unit_test(test_reading),
    };
    return cmocka_run_group_tests(tests, make_things, tear_down);
}
