/*
 * files.c - model directories to read and to write; see files.h.
 */
#include "store/files.h"

#include "base/error.h"
#include "base/file.h"
#include "model/config.h"

enum { PATH = 4096 };

static bool has(const char *dir, const char *name)
{
    char path[PATH];
    return file_join(path, sizeof path, dir, name, NULL) == HEED_OK && file_exists(path);
}

/* Whether dir is a checkpoint and out the directory that holds it. */
static bool holds_checkpoint(const char *out, const char *dir)
{
    char parent[PATH];
    return has(dir, "trainer.json") &&
           file_join(parent, sizeof parent, dir, "..", NULL) == HEED_OK &&
           file_is_same(out, parent);
}

/* Whether out holds the best weights of a training run: it is called best, beside checkpoints. */
static bool is_best(const char *out)
{
    char best[PATH];
    return has(out, "../checkpoints") &&
           file_join(best, sizeof best, out, "../best", NULL) == HEED_OK && file_is_same(out, best);
}

enum heed_status files_check_out(const char *const *dirs, int n, const char *out,
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

enum heed_status files_check_model(struct heed_config *c, const char *dir, struct heed_error *err)
{
    char path[PATH];
    enum heed_status s = file_join(path, sizeof path, dir, MODEL_CONFIG, err);
    if (!s) s = config_load(c, path, err);
    if (!s) s = file_join(path, sizeof path, dir, MODEL_VOCAB, err);
    if (s) return s;
    struct heed_error why = {0};
    struct heed_tokenizer *t = heed_tokenizer_load(path, &why);
    if (!t) return error_set(err, why.status, "%s", why.text);
    int pieces = heed_tokenizer_size(t);
    heed_tokenizer_free(t);
    if (pieces == c->vocab_size) return HEED_OK;
    return error_set(err, HEED_EFORMAT, "%s has %d pieces, expected %d by %s", path, pieces,
                     c->vocab_size, MODEL_CONFIG);
}
