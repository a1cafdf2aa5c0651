/*
 * directory.c - model directories to read and to write; see directory.h.
 */
#include "store/directory.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "model/config.h"
#include "ops/engine.h"
#include "store/weights.h"
#include "tokens/tokenizer.h"

/* ---- reading ---- */

/* Says of a path that is not a model directory what is wrong with it. What is wrong inside of its
 * files is said where they are read. */
static enum heed_status check_directory(const char *dir, struct heed_error *err)
{
    static const char *const name[] = {MODEL_CONFIG, MODEL_VOCAB, MODEL_WEIGHTS};
    char path[FILE_PATH_MAX];
    struct stat found;
    if (stat(dir, &found) != 0)
        return errno == ENOENT
                   ? error_set(err, HEED_EIO, "%s is no model: there is no such directory", dir)
                   : error_errno(err, "cannot open %s", dir);
    if (!S_ISDIR(found.st_mode)) {
        const char *slash = strrchr(dir, '/');
        int n = slash && slash > dir ? (int)(slash - dir) : 0;
        return error_set(err, HEED_EIO,
                         "%s is no model: it is a file, expected the directory%s%.*s that has %s",
                         dir, n ? " " : "", n, dir, MODEL_CONFIG);
    }
    enum heed_status s = HEED_OK;
    for (int i = 0; i < 3 && !s; i++) {
        s = file_join(path, sizeof path, dir, name[i], err);
        if (!s && stat(path, &found) != 0 && errno == ENOENT)
            s = error_set(err, HEED_EIO, "%s is no model: it has no %s", dir, name[i]);
    }
    return s;
}

enum heed_status directory_config(struct heed_config *c, const char *dir, struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    enum heed_status s = file_join(path, sizeof path, dir, MODEL_CONFIG, err);
    return s ? s : config_load(c, path, err);
}

/* A vocabulary of `size` pieces. */
static enum heed_status read_vocabulary(struct heed_tokenizer **out, const char *dir, int size,
                                        struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    struct heed_error why = {0};
    enum heed_status s = file_join(path, sizeof path, dir, MODEL_VOCAB, err);
    if (s) return s;
    struct heed_tokenizer *t = heed_tokenizer_load(path, &why);
    if (!t) return error_set(err, why.status, "%s", why.text);
    if (heed_tokenizer_size(t) == size) {
        *out = t;
        return HEED_OK;
    }
    s = error_set(err, HEED_EFORMAT, "%s has %d pieces, expected %d by %s", path,
                  heed_tokenizer_size(t), size, MODEL_CONFIG);
    heed_tokenizer_free(t);
    return s;
}

enum heed_status directory_read(struct heed_config *c, struct heed_tokenizer **t, const char *dir,
                                struct heed_error *err)
{
    enum heed_status s = check_directory(dir, err);
    if (!s) s = directory_config(c, dir, err);
    if (!s) s = read_vocabulary(t, dir, c->vocab_size, err);
    return s;
}

/* What a thread that reads a vocabulary is given and what it gives back. */
struct vocabulary {
    const char *dir;
    int size; /* expected */
    struct heed_tokenizer *tokenizer;
    enum heed_status status;
    struct heed_error err;
};

static void *vocabulary_thread(void *arg)
{
    struct vocabulary *v = arg;
    v->status = read_vocabulary(&v->tokenizer, v->dir, v->size, &v->err);
    return NULL;
}

/* Weights for translation. A model whose matrices cannot be cut into panels (parameters_fit_panels)
 * keeps its plain f32 matrices unless another type is asked for. */
static enum heed_status load_weights(struct parameters **out, struct backend *be,
                                     const struct heed_config *c, enum heed_weights weights,
                                     const char *path, struct heed_error *err)
{
    static const enum type type[] = {TYPE_F32, TYPE_PACKED_F32, TYPE_PACKED_BF16, TYPE_PACKED_I8};
    if ((unsigned)weights > HEED_WEIGHTS_INT8)
        return error_set(err, HEED_EARG, "weights are %d, expected 0 to %d", weights,
                         HEED_WEIGHTS_INT8);
    if (parameters_fit_panels(c) || weights > HEED_WEIGHTS_F32)
        return weights_open_packed(out, be, c, type[weights], path, err);
    struct parameters *p;
    enum heed_status s = parameters_open(&p, be, c, precision_f32, err);
    if (s) return s;
    s = weights_load(p, &(struct flat){.prefix = "", .m = p->master}, 1, path, err);
    if (s)
        parameters_free(p);
    else
        *out = p;
    return s;
}

/* The vocabulary is read by a second thread, since that takes about as long as checking small
 * weights. Where both are wrong, the error names the vocabulary. */
enum heed_status directory_load(struct parameters **p, struct heed_tokenizer **t,
                                struct heed_engine *e, const char *dir, enum heed_weights weights,
                                struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    struct heed_config c;
    struct parameters *loaded = NULL;
    pthread_t thread;
    enum heed_status s = check_directory(dir, err);
    if (!s) s = directory_config(&c, dir, err);
    if (!s) s = directory_weights(path, dir, err);
    if (s) return s;
    struct vocabulary v = {.dir = dir, .size = c.vocab_size};
    bool beside = pthread_create(&thread, NULL, vocabulary_thread, &v) == 0;
    if (!beside) vocabulary_thread(&v);
    pthread_mutex_lock(&e->lock);
    if (beside || !v.status) s = load_weights(&loaded, e->be, &c, weights, path, err);
    pthread_mutex_unlock(&e->lock);
    if (beside) pthread_join(thread, NULL);
    if (v.status) s = error_set(err, v.status, "%s", v.err.text);
    if (s) {
        directory_unload(loaded, v.tokenizer, e);
        return s;
    }
    *p = loaded;
    *t = v.tokenizer;
    return HEED_OK;
}

void directory_unload(struct parameters *p, struct heed_tokenizer *t, struct heed_engine *e)
{
    pthread_mutex_lock(&e->lock);
    parameters_free(p);
    pthread_mutex_unlock(&e->lock);
    heed_tokenizer_free(t);
}

enum heed_status directory_same_config(const char *dir, const struct heed_config *c,
                                       struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    struct heed_config found;
    enum heed_status s = file_join(path, sizeof path, dir, MODEL_CONFIG, err);
    if (!s) s = config_load(&found, path, err);
    if (!s) s = config_same(&found, c, path, err);
    return s;
}

enum heed_status directory_same_vocabulary(const char *dir, const struct heed_tokenizer *t,
                                           bool *same, struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    struct file_part vocab;
    vocab.data = tokenizer_bytes(t, &vocab.len);
    enum heed_status s = file_join(path, sizeof path, dir, MODEL_VOCAB, err);
    return s ? s : file_same(path, vocab, same, err);
}

/* ---- writing ---- */

enum heed_status directory_weights(char path[FILE_PATH_MAX], const char *dir,
                                   struct heed_error *err)
{
    return file_join(path, FILE_PATH_MAX, dir, MODEL_WEIGHTS, err);
}

static enum heed_status write_file(const char *dir, const char *name, const char *data, size_t len,
                                   struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    enum heed_status s = file_join(path, sizeof path, dir, name, err);
    return s ? s : file_write(path, &(struct file_part){data, len}, 1, err);
}

enum heed_status directory_begin(const char *dir, const struct heed_config *c,
                                 const struct heed_tokenizer *t, struct heed_error *err)
{
    size_t len;
    const char *vocab = tokenizer_bytes(t, &len);
    char *json = config_format(c);
    if (!json) return error_memory(err, 1024, MODEL_CONFIG);
    enum heed_status s = file_mkdir(dir, err);
    if (!s) s = write_file(dir, MODEL_VOCAB, vocab, len, err);
    if (!s) s = write_file(dir, MODEL_CONFIG, json, strlen(json), err);
    free(json);
    return s;
}

enum heed_status directory_save(const char *dir, struct parameters *p, const void *values,
                                const struct heed_tokenizer *t, struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    enum heed_status s = directory_begin(dir, &p->config, t, err);
    if (!s) s = directory_weights(path, dir, err);
    struct flat weights = {.prefix = "", .m = p->master, .host = values};
    if (!s) s = weights_save(p, &weights, 1, path, err);
    return s;
}

/* ---- outputs that are refused ---- */

static bool has(const char *dir, const char *name)
{
    char path[FILE_PATH_MAX];
    return file_join(path, sizeof path, dir, name, NULL) == HEED_OK && file_exists(path);
}

/* Whether dir is a checkpoint and out the directory that holds it. */
static bool holds_checkpoint(const char *out, const char *dir)
{
    char parent[FILE_PATH_MAX];
    return has(dir, "trainer.json") &&
           file_join(parent, sizeof parent, dir, "..", NULL) == HEED_OK &&
           file_is_same(out, parent);
}

/* Whether out holds the best weights of a training run: it is called best, beside checkpoints. */
static bool is_best(const char *out)
{
    char best[FILE_PATH_MAX];
    return has(out, "../checkpoints") &&
           file_join(best, sizeof best, out, "../best", NULL) == HEED_OK && file_is_same(out, best);
}

enum heed_status directory_check_out(const char *const *dirs, int n, const char *out,
                                     struct heed_error *err)
{
    if (!*out) return error_set(err, HEED_EARG, "no output directory was given");
    for (int i = 0; i < n; i++) {
        if (file_is_same(out, dirs[i]))
            return error_set(err, HEED_EARG,
                             "the output %s is the model %s itself: choose another directory", out,
                             dirs[i]);
        if (holds_checkpoint(out, dirs[i]))
            return error_set(err, HEED_EARG,
                             "%s holds the checkpoints of a run: choose another directory", out);
    }
    if (has(out, "checkpoints") || has(out, "trainer.json") || is_best(out))
        return error_set(err, HEED_EARG, "%s belongs to a training run: choose another directory",
                         out);
    return HEED_OK;
}

enum heed_status directory_check_new_run(const char *out, const struct heed_tokenizer *t,
                                         const char *vocab, struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    bool same = true;
    enum heed_status s = directory_weights(path, out, err);
    if (!s && file_exists(path))
        s = error_set(err, HEED_EARG,
                      "%s is there already, and no checkpoint to go on from: choose another "
                      "directory",
                      path);
    if (!s) s = file_join(path, sizeof path, out, MODEL_VOCAB, err);
    if (!s && file_exists(path)) s = directory_same_vocabulary(out, t, &same, err);
    if (!s && !same)
        s = error_set(err, HEED_EARG, "%s is another vocabulary than %s: choose another directory",
                      path, vocab);
    return s;
}
