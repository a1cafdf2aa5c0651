/*
 * test_resume.c - what a run leaves on disk and how it is resumed: every directory called step-N is
 * complete, damage is noticed, and a run with other options is not resumed.
 */
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "task.h"

/* What happened to the names in a directory, from the next inotify event on. */
struct names {
    int deleted, moved; /* names "step-N" without a suffix that were removed or renamed */
};

static struct names names_of(int watch)
{
    struct names n = {0};
    char buffer[8192] __attribute__((aligned(8)));
    for (ssize_t got; (got = read(watch, buffer, sizeof buffer)) > 0;)
        for (char *p = buffer; p < buffer + got;) {
            const struct inotify_event *e = (const struct inotify_event *)p;
            bool step = e->len && strncmp(e->name, "step-", 5) == 0 && !strchr(e->name, '.');
            n.deleted += step && (e->mask & IN_DELETE);
            n.moved += step && (e->mask & IN_MOVED_FROM);
            p += sizeof *e + e->len;
        }
    return n;
}

/* A kill may come between the removal of two files: by then the checkpoint must not be called
 * step-N any more. */
static void test_pruned_under_another_name(void **state)
{
    (void)state;
    struct heed_train_options o = options(in_place("pruned"));
    o.steps = 1;
    o.save_every = 1;
    o.keep = 2;
    must_train(&o, 1);
    int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    assert_true(watch >= 0);
    assert_true(
        inotify_add_watch(watch, in_place("pruned/checkpoints"), IN_DELETE | IN_MOVED_FROM) >= 0);
    o.steps = 5;
    o.resume = true;
    must_train(&o, 1);
    struct names n = names_of(watch);
    close(watch);
    assert_int_equal(n.deleted, 0);
    assert_int_equal(n.moved, 3);
    assert_false(file_exists(in_place("pruned/checkpoints/step-00000003")));
    assert_false(file_exists(in_place("pruned/checkpoints/step-00000003.old")));
    assert_true(file_exists(in_place("pruned/checkpoints/step-00000004")));
}

/* A crash may come after a checkpoint is saved and before it is published, or leave a checkpoint
 * half written or half removed. Other files in the directory are not removed. */
static void test_resume_repairs_and_spares(void **state)
{
    (void)state;
    struct heed_train_options o = options(in_place("repair"));
    must_train(&o, 1);
    assert_int_equal(unlink(in_place("repair/model.safetensors")), 0);
    assert_int_equal(unlink(in_place("repair/config.json")), 0);
    assert_int_equal(mkdir(in_place("repair/checkpoints/step-00000012.good"), 0777), 0);
    assert_int_equal(mkdir(in_place("repair/checkpoints/step-00000099.tmp"), 0777), 0);
    assert_int_equal(mkdir(in_place("repair/checkpoints/step-00000009.old"), 0777), 0);
    o.resume = true;
    must_train(&o, 1);
    assert_same_file(in_place("repair/model.safetensors"),
                     in_place("repair/checkpoints/step-00000012/model.safetensors"));
    assert_true(file_exists(in_place("repair/config.json")));
    assert_true(file_exists(in_place("repair/checkpoints/step-00000012.good")));
    assert_false(file_exists(in_place("repair/checkpoints/step-00000099.tmp")));
    assert_false(file_exists(in_place("repair/checkpoints/step-00000009.old")));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pruned_under_another_name),
        cmocka_unit_test(test_resume_repairs_and_spares),
    };
    device_or_skip();
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
