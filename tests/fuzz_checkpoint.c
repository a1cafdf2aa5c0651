/*
 * fuzz_checkpoint.c - libFuzzer entry: any bytes as one file of a checkpoint; the run is then
 * resumed for one step.
 *
 * The first byte chooses the file, the rest is what it holds; the other files are as they were
 * saved. A run is either refused with a sentence or makes its step and saves.
 */
#include "fuzz.h"

#include <dirent.h>

#include "base/file.h"
#include "tokens/tokenizer.h"

enum { FILES = 5, FILE_MOST = 1 << 16 };
static const char *const file_name[FILES] = {"trainer.json", "config.json", "state.safetensors",
                                             "model.safetensors", "vocab.model"};

static struct {
    char dir[64], src[96], tgt[96], vocab[96], out[96], saved[128];
    const char *src_list[1], *tgt_list[1];
    char *content[FILES]; /* of the files of the checkpoint */
    size_t len[FILES];
    struct heed_engine *engine;
    struct heed_trainer *trainer;
} run;

static void clean_up(void)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", run.dir);
    if (system(command) != 0) fprintf(stderr, "cannot remove %s\n", run.dir);
}

static void on_event(void *user, const struct heed_event *e)
{
    (void)user;
    if (e->kind == HEED_EVENT_STEP || e->kind == HEED_EVENT_SKIP) heed_trainer_stop(run.trainer);
}

static struct heed_train_options options(bool resume)
{
    struct heed_train_options o = heed_train_defaults();
    o.train = (struct heed_corpus){.src = run.src_list, .tgt = run.tgt_list, .n = 1};
    o.vocab = run.vocab;
    o.out = run.out;
    o.config = (struct heed_config){.d_model = 2,
                                    .d_ff = 2,
                                    .heads = 1,
                                    .encoder_layers = 1,
                                    .decoder_layers = 1,
                                    .max_length = 16};
    o.batch_tokens = 32;
    o.steps = 1000;
    o.save_every = 1;
    o.keep = 2;
    o.resume = resume;
    o.event = on_event;
    return o;
}

/* Trains one step and saves. */
static enum heed_status train(bool resume, struct heed_error *err)
{
    struct heed_train_options o = options(resume);
    run.trainer = heed_trainer_open(run.engine, &o, err);
    if (!run.trainer) return err->status;
    enum heed_status st = heed_trainer_run(run.trainer, err);
    heed_trainer_free(run.trainer);
    return st;
}

/* Restores the directory of the first run, except for one file of the checkpoint. */
static void put_back(int changed, const void *data, size_t size)
{
    char path[320];
    DIR *list;
    snprintf(path, sizeof path, "%s/checkpoints", run.out);
    if ((list = opendir(path))) {
        for (struct dirent *e; (e = readdir(list));) {
            snprintf(path, sizeof path, "%s/checkpoints/%.200s", run.out, e->d_name);
            if (e->d_name[0] != '.') must(!file_remove_dir(path, NULL), "a checkpoint is removed");
        }
        closedir(list);
    }
    if (mkdir(run.saved, 0777)) abort();
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%s/%s", run.saved, file_name[i]);
        fuzz_write(path, i == changed ? data : run.content[i], i == changed ? size : run.len[i]);
    }
}

static void make_run(void)
{
    struct heed_error err = {0};
    struct heed_tokenizer *t = fuzz_tokenizer();
    strcpy(run.dir,
           access("/dev/shm", W_OK) ? "/tmp/heed-fuzz-XXXXXX" : "/dev/shm/heed-fuzz-XXXXXX");
    if (!mkdtemp(run.dir)) abort();
    atexit(clean_up);
    snprintf(run.src, sizeof run.src, "%s/src", run.dir);
    snprintf(run.tgt, sizeof run.tgt, "%s/tgt", run.dir);
    snprintf(run.vocab, sizeof run.vocab, "%s/vocab", run.dir);
    snprintf(run.out, sizeof run.out, "%s/out", run.dir);
    snprintf(run.saved, sizeof run.saved, "%s/checkpoints/step-00000001", run.out);
    run.src_list[0] = run.src;
    run.tgt_list[0] = run.tgt;
    fuzz_write(run.src, "a b c\nd e\nf\n", 12);
    fuzz_write(run.tgt, "c b a\ne d\nf\n", 12);
    size_t len;
    const char *bytes = tokenizer_bytes(t, &len);
    fuzz_write(run.vocab, bytes, len);
    heed_tokenizer_free(t);
    run.engine = heed_engine_open("cpu", 1, &err);
    must(run.engine, err.text);
    must(!train(false, &err), err.text);
    for (int i = 0; i < FILES; i++) {
        char path[192];
        snprintf(path, sizeof path, "%s/%s", run.saved, file_name[i]);
        must(!file_read(path, FILE_MOST, &run.content[i], &run.len[i], &err), err.text);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const words[] = {"\"step\"",
                                        "\"epoch\"",
                                        "\"pool\"",
                                        "\"batch\"",
                                        "\"guard_norm\"",
                                        "\"guard_seen\"",
                                        "\"skipped\"",
                                        "\"skips\"",
                                        "\"regular\"",
                                        "\"rollbacks\"",
                                        "\"best\"",
                                        "\"best_step\"",
                                        "\"validated\"",
                                        "\"batch_tokens\"",
                                        "\"accumulate\"",
                                        "\"stale\"",
                                        "\"seed\"",
                                        "\"precision\"",
                                        "\"bf16\"",
                                        "\"f32\"",
                                        "\"subword_dropout\"",
                                        "9223372036854775807",
                                        "9223372036854775806",
                                        "2147483647",
                                        "1e999",
                                        "1e308",
                                        "999",
                                        "1000",
                                        NULL};
    make_run();
    if (!fuzz_begin(argc, argv, words)) return 0;
    for (int i = 0; i < FILES; i++) {
        uint8_t seed[FILE_MOST + 1] = {(uint8_t)i};
        memcpy(seed + 1, run.content[i], run.len[i]);
        fuzz_seed(file_name[i], seed, run.len[i] + 1);
        /* Without its checksum no change of the data is refused. */
        uint8_t *sum = memmem(seed, run.len[i] + 1, "crc32", 5);
        if (sum) {
            char name[64];
            memcpy(sum, "other", 5);
            snprintf(name, sizeof name, "%s-unsummed", file_name[i]);
            fuzz_seed(name, seed, run.len[i] + 1);
        }
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > FILE_MOST) return 0;
    struct heed_error err = {0};
    put_back(data[0] % FILES, data + 1, size - 1);
    int next = fuzz_next_fd();
    enum heed_status st = train(true, &err);
    if (st) must_explain(st, &err);
    must(fuzz_next_fd() == next, "no file is left open");
    return 0;
}
