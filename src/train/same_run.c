/*
 * same_run.c - whether the ranks of a cluster were started for the same run: the same options and
 * text, and one output directory that all of them see.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "model/config.h"
#include "train/fingerprint.h"
#include "train/trainer.h"

/* ---- options ---- */

/* Options that a resumed run may change, but that all ranks must share. */
static char *other_options(const struct heed_train_options *o, const char *vocab)
{
    static const char *const link[] = {"auto", "host", "nccl"};
    enum { ROOM = 512 };
    char *text = malloc(ROOM);
    if (!text) return NULL;
    snprintf(text, ROOM,
             "vocabulary of %s\n--steps %lld\n--valid-every %lld\n--no-bleu %d\n--patience %d\n"
             "--save-every %lld\n--keep %d\n--resume %d\n--link %s\n--sum %s\n",
             vocab, (long long)o->steps, (long long)o->valid_every, !o->valid_bleu, o->patience,
             (long long)o->save_every, o->keep, o->resume, link[o->link],
             o->sum == HEED_SUM_FAST ? "fast" : "exact");
    return text;
}

static char *shape_options(const struct heed_config *c)
{
    enum { LINE_ROOM = 128 };
    const struct heed_config_field *f;
    char value[CONFIG_VALUE], *text;
    int fields = 0;
    size_t len = 0;
    while (heed_config_field_at(fields)) fields++;
    text = calloc((size_t)fields + 1, LINE_ROOM);
    for (int i = 0; text && (f = heed_config_field_at(i)); i++)
        len +=
            (size_t)snprintf(text + len, LINE_ROOM, "%s %s\n", f->name, config_show(value, c, f));
    return text;
}

/* Lines "OPTION VALUE", malloced. */
static char *describe(const struct heed_trainer *t, const struct recipe *given,
                      struct heed_error *err)
{
    char vocab[FINGERPRINT_MAX] = "", *text = NULL;
    if (fingerprint_file(vocab, t->o.vocab, err)) return NULL;
    char *part[] = {record_options(given), shape_options(&t->o.config),
                    other_options(&t->o, vocab)};
    enum { PARTS = sizeof part / sizeof *part };
    size_t bytes = 1;
    bool good = true;
    for (int i = 0; i < PARTS; i++) good = good && part[i];
    for (int i = 0; i < PARTS && good; i++) bytes += strlen(part[i]);
    if (good) text = calloc(1, bytes);
    for (int i = 0; i < PARTS; i++) {
        if (text) strcat(text, part[i]);
        free(part[i]);
    }
    if (!text) error_memory(err, bytes, "the options of a run");
    return text;
}

/* The first line in which a and b differ becomes an error. */
static enum heed_status compare(const struct heed_cluster *c, const char *first, const char *other,
                                int rank, struct heed_error *err)
{
    while (*first && *other) {
        int a = (int)strcspn(first, "\n"), b = (int)strcspn(other, "\n");
        if (a != b || memcmp(first, other, (size_t)a) != 0)
            return error_set(err, HEED_EARG,
                             "ranks were given different options: rank 0 on host %s has %.*s, "
                             "rank %d on host %s has %.*s",
                             c->host[0], a, first, rank, c->host[rank], b, other);
        first += a + 1;
        other += b + 1;
    }
    return HEED_OK;
}

static enum heed_status same_options(struct heed_trainer *t, const struct recipe *given,
                                     struct heed_error *err)
{
    struct heed_cluster *c = t->cluster;
    char **all = NULL, *mine = describe(t, given, err);
    enum heed_status s = cluster_agree(c, mine ? HEED_OK : HEED_EIO, err);
    if (!s) s = cluster_texts(c, mine, &all, err);
    for (int i = 1; i < c->ranks && !s; i++) s = compare(c, all[0], all[i], i, err);
    free(all);
    free(mine);
    return s;
}

/* ---- directory ---- */

/* Creates a file with a name that no other run has. */
static enum heed_status nonce_make(char path[FILE_PATH_MAX], const char *out,
                                   struct heed_error *err)
{
    char name[64];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(name, sizeof name, ".shared-%ld-%ld%09ld", (long)getpid(), (long)now.tv_sec,
             now.tv_nsec);
    enum heed_status s = file_join(path, FILE_PATH_MAX, out, name, err);
    if (s) return s;
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (fd < 0) return error_errno(err, "cannot create %s", path);
    close(fd);
    return HEED_OK;
}

/* The others look for it under the directory that they were given, in the name of which they may
 * differ. A network file system may show a new file with a delay. */
static bool nonce_seen(const char *out, const char *path)
{
    enum { LOOKS = 20, PAUSE_NS = 100000000 };
    char mine[FILE_PATH_MAX];
    const char *name = strrchr(path, '/');
    if (!name || file_join(mine, sizeof mine, out, name + 1, NULL)) return false;
    for (int i = 0; i < LOOKS; i++) {
        if (file_exists(mine)) return true;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    return false;
}

static enum heed_status same_directory(struct heed_trainer *t, struct heed_error *err)
{
    struct heed_cluster *c = t->cluster;
    char path[FILE_PATH_MAX] = "";
    enum heed_status s = c->rank == 0 ? nonce_make(path, t->o.out, err) : HEED_OK;
    s = cluster_agree(c, s, err);
    if (!s) s = cluster_from_first(c, path, sizeof path, err);
    if (s) return s;
    if (c->rank && !nonce_seen(t->o.out, path))
        s = error_set(err, HEED_EARG,
                      "the output directory %s is not that of rank 0 on host %s: it must be on a "
                      "file system that all hosts share",
                      t->o.out, c->host[0]);
    s = cluster_agree(c, s, err);
    if (c->rank == 0) unlink(path);
    return s;
}

enum heed_status trainer_same_run(struct heed_trainer *t, const struct recipe *given,
                                  struct heed_error *err)
{
    enum heed_status s = cluster_agree(t->cluster, same_options(t, given, err), err);
    return s ? s : same_directory(t, err);
}
