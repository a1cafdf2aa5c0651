/*
 * test_train.c - the trainer through heed.h: a run gives the same bits in one piece or several, and
 * ends with a clear error when something is wrong.
 */
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/flops.h"
#include "store/safetensors.h"
#include "task.h"
#include "train/optimizer.h"

static void test_schedule(void **state)
{
    (void)state;
    struct schedule s = {schedule_paper_peak(512, 4000), 4000, HEED_SCHEDULE_INVERSE_SQRT};
    for (int64_t step = 1; step < 20000; step += 777) {
        double want = pow(512, -0.5) * fmin(pow(step, -0.5), step * pow(4000, -1.5));
        assert_true(fabs(schedule_lr(&s, step) / want - 1) < 1e-12);
    }
    struct schedule constant = {0.01, 10, HEED_SCHEDULE_CONSTANT};
    assert_true(fabs(schedule_lr(&constant, 5) - 0.005) < 1e-12);
    assert_true(fabs(schedule_lr(&constant, 10) - 0.01) < 1e-12);
    assert_true(fabs(schedule_lr(&constant, 5000) - 0.01) < 1e-12);
}

/* The products of one layer of each stack, written out with the numbers of the shape. */
static void test_flops(void **state)
{
    (void)state;
    struct heed_config c = {.d_model = 8,
                            .d_ff = 32,
                            .heads = 2,
                            .encoder_layers = 1,
                            .decoder_layers = 1,
                            .vocab_size = 100};
    struct packed b = {.n = 1,
                       .rows_src = 5,
                       .rows_tgt = 6,
                       .src_len = (const int32_t[]){5},
                       .tgt_len = (const int32_t[]){6}};
    double enc = 5 * (4 * 64 + 2 * 8 * 32) + 2 * 5 * 5 * 8;
    double dec = 6 * (6 * 64 + 2 * 8 * 32) + 5 * 2 * 64 + 6 * 6 * 8 + 2 * 6 * 5 * 8;
    assert_true(fabs(model_flops(&c, &b) - 6 * (enc + dec + 6 * 8 * 100)) < 1e-6);
    c.d_k = 1; /* queries and keys of 2 columns, of which scores are made */
    enc = 5 * (2 * 64 + 2 * 16 + 2 * 8 * 32) + 5 * 5 * (8 + 2);
    dec = 6 * (3 * 64 + 3 * 16 + 2 * 8 * 32) + 5 * (64 + 16) + (6 * 3 + 6 * 5) * (8 + 2);
    assert_true(fabs(model_flops(&c, &b) - 6 * (enc + dec + 6 * 8 * 100)) < 1e-6);
}

static void test_threads_and_resume_are_exact(void **state)
{
    (void)state;
    enum { F32, BF16, SUBWORD_DROPOUT, EXPERTS, KINDS };
    for (int kind = 0; kind < KINDS; kind++) {
        char one[160], two[160], cut[160], file[3][192];
        snprintf(one, sizeof one, "%s/one-%d", place.dir, kind);
        snprintf(two, sizeof two, "%s/two-%d", place.dir, kind);
        snprintf(cut, sizeof cut, "%s/cut-%d", place.dir, kind);
        struct heed_train_options o = options(one);
        o.precision = kind == BF16 ? HEED_BF16 : HEED_F32;
        o.subword_dropout = kind == SUBWORD_DROPOUT ? 0.3f : 0;
        if (kind == EXPERTS) o.config.ff = HEED_FF_MOE;
        o.accumulate = 2;
        o.steps = few(12, 3);
        must_train(&o, 1);
        o.out = two;
        must_train(&o, 2);
        o.out = cut;
        o.steps = few(5, 1);
        must_train(&o, 2);
        o.steps = few(12, 3);
        o.resume = true;
        must_train(&o, 1);
        const char *dirs[] = {one, two, cut};
        for (int i = 0; i < 3; i++)
            snprintf(file[i], sizeof file[i], "%s/model.safetensors", dirs[i]);
        assert_same_file(file[0], file[1]);
        assert_same_file(file[0], file[2]);
    }
}

static void assert_other_file(const char *a, const char *b)
{
    char *x, *y;
    size_t n, m;
    assert_int_equal(file_read(a, 1 << 26, &x, &n, NULL), 0);
    assert_int_equal(file_read(b, 1 << 26, &y, &m, NULL), 0);
    assert_int_equal(n, m);
    assert_memory_not_equal(x, y, n);
    free(x);
    free(y);
}

/* Another seed or rate must give another model, or the test above shows nothing. */
static void test_seed_and_subword_dropout_matter(void **state)
{
    (void)state;
    struct heed_train_options o = options(in_place("seed-1"));
    o.steps = few(12, 3);
    must_train(&o, 1);
    o.out = in_place("seed-2");
    o.seed = 2;
    must_train(&o, 1);
    assert_other_file(in_place("seed-1/model.safetensors"), in_place("seed-2/model.safetensors"));
    o = options(in_place("subword"));
    o.steps = few(12, 3);
    o.subword_dropout = 0.3f;
    must_train(&o, 1);
    assert_other_file(in_place("seed-1/model.safetensors"), in_place("subword/model.safetensors"));
}

static void test_wrong_options(void **state)
{
    (void)state;
    struct heed_train_options o = options(in_place("wrong"));
    o.config.heads = 3;
    assert_fails(&o, HEED_EARG, "heads");
    o = options(in_place("wrong"));
    o.config.vocab_size = 300;
    assert_fails(&o, HEED_EARG, "275 pieces, expected 300");
    o = options(in_place("wrong"));
    o.vocab = place.src;
    assert_fails(&o, HEED_EFORMAT, place.src);
    o = options("/proc/heed");
    assert_fails(&o, HEED_EIO, "/proc/heed");
    o = options(in_place("again"));
    must_train(&o, 1);
    assert_fails(&o, HEED_EARG, "--resume");
    o.resume = true;
    o.batch_tokens = 64;
    assert_fails(&o, HEED_EARG, "--batch-tokens 128, found 64");
    o.batch_tokens = 128;
    o.subword_dropout = 0.1f;
    assert_fails(&o, HEED_EARG, "--subword-dropout 0, found 0.1");
    o.subword_dropout = 0;
    o.config.d_ff = 64;
    assert_fails(&o, HEED_EFORMAT, "d_ff");
    o = options(in_place("wrong"));
    o.beta2 = 1;
    assert_fails(&o, HEED_EARG, "beta2");
    o = options(in_place("wrong"));
    const float rates[] = {-0.1f, 1, NAN};
    for (int i = 0; i < 3; i++) {
        o.subword_dropout = rates[i];
        assert_fails(&o, HEED_EARG, "expected at least 0 and less than 1");
    }
}

/* A vocabulary of the same size gives every id another meaning. */
static void test_another_vocabulary(void **state)
{
    (void)state;
    struct heed_train_options o = options(in_place("mine"));
    o.steps = few(12, 3);
    must_train(&o, 1);
    char src[96], tgt[96], other[96];
    strcpy(src, in_place("k.src"));
    strcpy(tgt, in_place("k.tgt"));
    strcpy(other, in_place("other.model"));
    write_task(src, tgt, 'k');
    make_vocab(src, tgt, other);
    o.resume = true;
    o.steps = few(20, 4);
    o.vocab = other;
    assert_fails(&o, HEED_EARG, "another vocabulary");
    o.resume = false;
    o.out = in_place("theirs");
    must_train(&o, 1);
    struct heed_error err = {0};
    const char *dirs[] = {in_place("mine"), in_place("theirs")};
    assert_int_equal(heed_average(dirs, 2, in_place("mixed"), &err), HEED_EFORMAT);
    assert_non_null(strstr(err.text, "another vocabulary"));
}

/* The record without a key, as before there was one, and without its checksum. */
static void make_older(const char *record, const char *key)
{
    char command[512];
    snprintf(command, sizeof command,
             "sed -i '/\"%s\":/d; /\"crc32\":/d' %s && sed -i -z 's/,\\n}/\\n}/' %s", key, record,
             record);
    assert_int_equal(system(command), 0);
}

/* Checkpoints that do not name the rate of subword dropout were trained without. */
static void test_older_checkpoint(void **state)
{
    (void)state;
    struct heed_train_options o = options(in_place("older"));
    must_train(&o, 1);
    make_older(in_place("older/checkpoints/step-00000012/trainer.json"), "subword_dropout");
    o.resume = true;
    o.steps = 13;
    o.subword_dropout = 0.1f;
    assert_fails(&o, HEED_EARG, "--subword-dropout 0, found 0.1");
    o.subword_dropout = 0;
    must_train(&o, 1);
}

static void test_damaged_checkpoint(void **state)
{
    (void)state;
    struct heed_train_options o = options(in_place("damaged"));
    must_train(&o, 1);
    const char *path = in_place("damaged/checkpoints/step-00000012/state.safetensors");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    FILE *f = fopen(path, "r+");
    fseek(f, st.st_size - 5, SEEK_SET);
    fputc(0x7f, f);
    fclose(f);
    o.resume = true;
    o.steps = 20;
    assert_fails(&o, HEED_EFORMAT, "state.safetensors");
    assert_int_equal(truncate(path, st.st_size / 2), 0);
    assert_fails(&o, HEED_EFORMAT, "state.safetensors");
}

/* ---- what is kept, when it stops ---- */

struct seen {
    int count[HEED_EVENT_INDEX + 1];
    char text[512];
    struct heed_trainer *trainer;
    int stop_at;      /* step; 0: never */
    atomic_int steps; /* so far; another thread may look */
};

static void note(void *user, const struct heed_event *e)
{
    struct seen *s = user;
    s->count[e->kind]++;
    s->steps = (int)e->step;
    if (s->stop_at && e->step >= s->stop_at) heed_trainer_stop(s->trainer);
    if (e->text) snprintf(s->text, sizeof s->text, "%s", e->text);
}

static void test_checkpoints_kept_and_averaged(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct heed_train_options o = options(in_place("kept"));
    o.valid = o.train;
    o.valid_every = few(4, 12);
    o.save_every = 3;
    o.keep = 2;
    o.event = note;
    o.user = &seen;
    must_train(&o, 1);
    assert_int_equal(seen.count[HEED_EVENT_STEP], 12);
    assert_int_equal(seen.count[HEED_EVENT_VALID], few(3, 1));
    assert_int_equal(seen.count[HEED_EVENT_SAVE], 4);
    assert_int_equal(seen.count[HEED_EVENT_DONE], 1);
    assert_false(file_exists(in_place("kept/checkpoints/step-00000006")));
    assert_true(file_exists(in_place("kept/best/model.safetensors")));
    assert_same_file(in_place("kept/model.safetensors"),
                     in_place("kept/checkpoints/step-00000012/model.safetensors"));

    struct heed_error err = {0};
    const char *dirs[] = {in_place("kept/checkpoints/step-00000009"),
                          in_place("kept/checkpoints/step-00000012")};
    if (heed_average(dirs, 2, in_place("mean"), &err)) fail_msg("%s", err.text);
    struct safetensors *f[3];
    const char *paths[] = {in_place("kept/checkpoints/step-00000009/model.safetensors"),
                           in_place("kept/checkpoints/step-00000012/model.safetensors"),
                           in_place("mean/model.safetensors")};
    for (int i = 0; i < 3; i++) assert_int_equal(safetensors_open(&f[i], paths[i], &err), HEED_OK);
    for (int i = 0; i < safetensors_count(f[0]); i++) {
        const struct tensor *t = safetensors_at(f[0], i);
        const float *a = t->data, *b = safetensors_find(f[1], t->name)->data;
        const float *mean = safetensors_find(f[2], t->name)->data;
        for (size_t k = 0; k < t->bytes / sizeof *a; k++)
            assert_true(mean[k] == (float)(((double)a[k] + (double)b[k]) / 2));
    }
    for (int i = 0; i < 3; i++) safetensors_free(f[i]);
}

/* The figures of up to 8 validations, and which were called the best so far. */
struct figures {
    double nll[8], bleu[8], chrf[8];
    bool best[8];
    int n;
    const char *unlink[2]; /* removed when the run starts; NULL: nothing */
};

static void note_figures(void *user, const struct heed_event *e)
{
    struct figures *f = user;
    for (int i = 0; e->kind == HEED_EVENT_START && i < 2; i++)
        if (f->unlink[i]) assert_int_equal(unlink(f->unlink[i]), 0);
    if (e->kind != HEED_EVENT_VALID || f->n == 8) return;
    f->nll[f->n] = e->nll;
    f->bleu[f->n] = e->bleu;
    f->chrf[f->n] = e->chrf;
    f->best[f->n++] = e->best;
}

/* Validation text is read and tokenized when the trainer is opened and never again. */
static void test_validation_text_is_read_once(void **state)
{
    (void)state;
    struct figures there = {0}, gone = {0};
    char src[96], tgt[96];
    strcpy(src, in_place("valid.src"));
    strcpy(tgt, in_place("valid.tgt"));
    write_task(src, tgt, 'a');
    struct heed_train_options o = options(in_place("valid-there"));
    o.valid =
        (struct heed_corpus){.src = (const char *[]){src}, .tgt = (const char *[]){tgt}, .n = 1};
    o.valid_every = 4;
    o.steps = few(12, 4);
    o.event = note_figures;
    o.user = &there;
    must_train(&o, 1);
    o.out = in_place("valid-gone");
    o.user = &gone;
    gone.unlink[0] = src;
    gone.unlink[1] = tgt;
    must_train(&o, 1);
    assert_int_equal(there.n, few(3, 1));
    assert_int_equal(gone.n, there.n);
    assert_memory_equal(gone.nll, there.nll, sizeof there.nll);
    assert_memory_equal(gone.bleu, there.bleu, sizeof there.bleu);
}

/* ---- samples ---- */

static size_t length_of(const json_t *j, const char *key)
{
    return json_array_size(json_object_get(j, key));
}

/* A line has the five pairs, the same at every validation, and the attention of the first. */
static void check_samples(const json_t *line, const json_t *first, int64_t step)
{
    static const char *const use[] = {"encoder", "decoder", "cross"};
    const json_t *texts = json_object_get(line, "texts"), *text;
    const json_t *attention = json_object_get(line, "attention");
    size_t i;
    assert_int_equal(json_integer_value(json_object_get(line, "step")), step);
    assert_int_equal(json_array_size(texts), 5);
    json_array_foreach (texts, i, text) {
        const json_t *was = json_array_get(json_object_get(first, "texts"), i);
        assert_true(json_is_string(json_object_get(text, "translation")));
        assert_true(json_equal(json_object_get(text, "source"), json_object_get(was, "source")));
        assert_true(
            json_equal(json_object_get(text, "reference"), json_object_get(was, "reference")));
        assert_true(i == 0 || !json_equal(json_object_get(text, "source"),
                                          json_object_get(json_array_get(texts, i - 1), "source")));
    }
    for (int k = 0; k < 3; k++) {
        const json_t *map = json_object_get(attention, use[k]);
        const json_t *head = json_array_get(json_array_get(json_object_get(map, "weights"), 0), 1);
        assert_in_range(length_of(map, "queries"), 5, 13); /* with the end mark */
        assert_in_range(length_of(map, "keys"), 5, 13);
        assert_int_equal(json_array_size(head), length_of(map, "queries"));
        double sum = 0;
        for (size_t n = 0; n < length_of(map, "keys"); n++)
            sum += json_number_value(json_array_get(json_array_get(head, 0), n));
        assert_true(fabs(sum - 1) < 0.01);
    }
}

/* Every validation adds a line to samples.jsonl. A run that was killed after its last checkpoint
 * writes the lines that it had written since then once more, and the samples change no weight. */
static void test_samples(void **state)
{
    (void)state;
    char *text, command[512];
    size_t len;
    struct heed_train_options o = options(in_place("no-samples"));
    o.steps = 12;
    o.save_every = 4;
    o.keep = 5;
    must_train(&o, 1);
    assert_false(file_exists(in_place("no-samples/samples.jsonl")));
    o.valid = o.train;
    o.valid_every = 4;
    o.out = in_place("samples");
    must_train(&o, 2);
    o.out = in_place("samples-killed");
    must_train(&o, 1);
    snprintf(command, sizeof command,
             "cd %s && rm -r checkpoints/step-00000008 checkpoints/step-00000012 && "
             "printf '{\"step\":12,\"te' >>samples.jsonl",
             o.out);
    assert_int_equal(system(command), 0);
    o.resume = true;
    must_train(&o, 1);
    assert_same_file(in_place("samples/samples.jsonl"), in_place("samples-killed/samples.jsonl"));
    assert_same_file(in_place("samples/model.safetensors"),
                     in_place("no-samples/model.safetensors"));
    assert_int_equal(file_read(in_place("samples/samples.jsonl"), 1 << 26, &text, &len, NULL), 0);
    json_t *line = NULL, *first = NULL;
    int64_t step = 0;
    for (size_t at = 0; at < len; at = (size_t)(strchr(text + at, '\n') + 1 - text)) {
        line = json_loads(text + at, JSON_DISABLE_EOF_CHECK, NULL);
        if (!first) first = json_incref(line);
        check_samples(line, first, step += 4);
        json_decref(line);
    }
    assert_int_equal(step, 12);
    json_decref(first);
    free(text);
}

/* The best is what the given figure says, whatever the others do; without one, the nll. */
static void test_best_by(void **state)
{
    (void)state;
    for (int by = HEED_BEST_NLL; by <= HEED_BEST_CHRF; by++) {
        struct figures f = {0};
        char name[16];
        snprintf(name, sizeof name, "best-by-%d", by);
        struct heed_train_options o = options(in_place(name));
        o.valid = o.train;
        o.valid_every = few(2, 12);
        if (by) o.best_by = (enum heed_best)by;
        o.valid_bleu = by == HEED_BEST_NLL; /* a score to choose by is computed in any case */
        o.event = note_figures;
        o.user = &f;
        must_train(&o, 1);
        assert_int_equal(f.n, few(6, 1));
        double best = -HUGE_VAL;
        for (int i = 0; i < f.n; i++) {
            assert_true(f.bleu[i] >= 0 && f.chrf[i] >= 0);
            double value = by == HEED_BEST_BLEU   ? f.bleu[i]
                           : by == HEED_BEST_CHRF ? f.chrf[i]
                                                  : -f.nll[i];
            assert_int_equal(f.best[i], value > best);
            if (value > best) best = value;
        }
    }
}

static void test_patience(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct heed_train_options o = options(in_place("patience"));
    o.valid = o.train;
    o.valid_every = 1;
    o.valid_bleu = false;
    o.patience = 2;
    o.peak_lr = 1e-30f; /* nothing moves, so nothing gets better */
    o.event = note;
    o.user = &seen;
    must_train(&o, 1);
    assert_int_equal(seen.count[HEED_EVENT_VALID], 3);
    assert_non_null(strstr(seen.text, "no better validation"));
}

static void test_divergence_goes_back_then_ends(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct heed_train_options o = options(in_place("diverged"));
    o.peak_lr = 1e30f;
    o.warmup = 1;
    o.event = note;
    o.user = &seen;
    assert_fails(&o, HEED_ENUMERIC, "no checkpoint to go back to");
    assert_int_equal(seen.count[HEED_EVENT_SKIP], 5);

    /* a good start, then a learning rate that ruins it: a run that does not say its own takes any
     */
    memset(&seen, 0, sizeof seen);
    o.out = in_place("ruined");
    o.peak_lr = 1e-4f;
    o.save_every = 4;
    must_train(&o, 1);
    make_older(in_place("ruined/checkpoints/step-00000012/trainer.json"), "lr");
    o.resume = true;
    o.steps = 100;
    o.peak_lr = 1e30f;
    assert_fails(&o, HEED_ENUMERIC, "going back did not help");
    assert_int_equal(seen.count[HEED_EVENT_ROLLBACK], 3);
    assert_true(file_exists(in_place("ruined/checkpoints/step-00000012/model.safetensors")));
    /* steps 14 to 18 were skipped: what was due at 16 came after going back at 18 */
    assert_false(file_exists(in_place("ruined/checkpoints/step-00000016")));
    assert_true(file_exists(in_place("ruined/checkpoints/step-00000018/model.safetensors")));
}

/* Gradients that stay large but finite, with no checkpoint to go back to: the run goes on. */
static void test_large_gradients_are_accepted(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct heed_train_options o = options(in_place("large"));
    o.peak_lr = 1e-6f;
    o.steps = 110;
    must_train(&o, 1);
    const char *record = in_place("large/checkpoints/step-00000110/trainer.json");
    make_older(record, "lr");
    char command[512];
    snprintf(command, sizeof command, "sed -i 's/\"regular\": [0-9]*/\"regular\": 0/' %s", record);
    assert_int_equal(system(command), 0);
    o.resume = true;
    o.peak_lr = 30;
    o.steps = 200;
    o.event = note;
    o.user = &seen;
    must_train(&o, 1);
    assert_true(seen.count[HEED_EVENT_SKIP] > 5);
    assert_int_equal(seen.count[HEED_EVENT_ROLLBACK], 0);
}

static void test_one_run_a_directory(void **state)
{
    (void)state;
    int lock;
    struct heed_error err = {0};
    struct heed_train_options o = options(in_place("locked"));
    assert_int_equal(file_mkdir(o.out, &err), HEED_OK);
    assert_int_equal(file_lock_dir(o.out, &lock, &err), HEED_OK);
    assert_fails(&o, HEED_EIO, "in use by another process");
    close(lock);
    must_train(&o, 1);
}

/* When and how a trainer is asked to stop. */
static void run_with(struct heed_train_options *o, struct seen *seen,
                     void (*before)(struct seen *seen))
{
    struct heed_error err = {0};
    o->event = note;
    o->user = seen;
    struct heed_engine *e = heed_engine_open(device_or_cpu(), 1, &err);
    seen->trainer = heed_trainer_open(e, o, &err);
    if (!seen->trainer) fail_msg("%s", err.text);
    if (before) before(seen);
    if (heed_trainer_run(seen->trainer, &err)) fail_msg("%s", err.text);
    heed_trainer_free(seen->trainer);
    heed_engine_free(e);
}

static void test_stop_saves(void **state)
{
    (void)state;
    struct seen seen = {.stop_at = 5};
    struct heed_train_options o = options(in_place("stop"));
    run_with(&o, &seen, NULL);
    assert_string_equal(seen.text, "interrupted");
    assert_true(file_exists(in_place("stop/checkpoints/step-00000005/model.safetensors")));
    assert_false(file_exists(in_place("stop/checkpoints/step-00000006")));
    seen = (struct seen){0};
    o.resume = true;
    run_with(&o, &seen, NULL);
    assert_true(file_exists(in_place("stop/checkpoints/step-00000012/model.safetensors")));
}

static void stop_now(struct seen *seen)
{
    heed_trainer_stop(seen->trainer);
}

static pthread_t stopper;

static void *stop_after_steps(void *user)
{
    struct seen *seen = user;
    while (seen->steps < 3) usleep(100);
    heed_trainer_stop(seen->trainer);
    return NULL;
}

static void start_stopper(struct seen *seen)
{
    assert_int_equal(pthread_create(&stopper, NULL, stop_after_steps, seen), 0);
}

/* Stopped by another thread while it runs, or before it does. */
static void test_stop_from_elsewhere(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct heed_train_options o = options(in_place("elsewhere"));
    o.steps = INT64_C(1000000000);
    run_with(&o, &seen, start_stopper);
    assert_int_equal(pthread_join(stopper, NULL), 0);
    assert_string_equal(seen.text, "interrupted");
    assert_true(seen.steps >= 3);
    assert_int_equal(seen.count[HEED_EVENT_SAVE], 1);
    seen = (struct seen){0};
    o.out = in_place("at-once");
    run_with(&o, &seen, stop_now);
    assert_string_equal(seen.text, "interrupted");
    assert_int_equal(seen.count[HEED_EVENT_STEP], 0);
    heed_trainer_stop(NULL);
}

/* The last step of a run may be one that was skipped. Weights that are numbers are saved all the
 * same; others are not, and the run says so. */
static void test_skip_at_the_end(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct heed_train_options o = options(in_place("skip"));
    o.steps = 2;
    o.warmup = 1;
    o.peak_lr = 1e30f;
    o.event = note;
    o.user = &seen;
    must_train(&o, 1);
    assert_int_equal(seen.count[HEED_EVENT_SKIP], 1);
    assert_true(file_exists(in_place("skip/checkpoints/step-00000002/model.safetensors")));
    /* without epsilon, Adam divides 0 by 0 where dropout left no gradient */
    o = options(in_place("infinite"));
    o.steps = 1;
    o.epsilon = 0;
    o.batch_tokens = 32;
    o.config.ff_dropout = 0.99f;
    assert_fails(&o, HEED_ENUMERIC, "not numbers");
    assert_false(file_exists(in_place("infinite/model.safetensors")));
}

/* Where a run stops does not depend on the pieces it was run in. */
static void test_patience_in_pieces(void **state)
{
    (void)state;
    struct heed_train_options o = options(in_place("pieces"));
    o.valid = o.train;
    o.valid_every = 2;
    o.valid_bleu = false;
    o.patience = 3;
    o.peak_lr = 1e-30f;
    o.resume = true;
    for (int i = 0; i < 3; i++) {
        o.steps = (int[]){3, 5, 100}[i];
        must_train(&o, 1);
    }
    assert_true(file_exists(in_place("pieces/checkpoints/step-00000008")));
    assert_false(file_exists(in_place("pieces/checkpoints/step-00000009")));
}

/* ---- a device beside the CPU ---- */

enum { CURVE = 150 };

struct curve {
    double loss[CURVE];
    int n;
};

static void note_loss(void *user, const struct heed_event *e)
{
    struct curve *c = user;
    if (e->kind == HEED_EVENT_STEP && c->n < CURVE) c->loss[c->n++] = e->loss;
}

static void curve_run(struct curve *c, const char *device, enum heed_precision precision,
                      const char *out)
{
    struct heed_error err = {0};
    struct heed_train_options o = options(out);
    o.steps = few(CURVE, 10);
    o.precision = precision;
    o.config.d_model = 32, o.config.d_ff = 64;
    o.event = note_loss;
    o.user = c;
    *c = (struct curve){.n = 0};
    if (train_on(device, &o, 0, &err)) fail_msg("%s", err.text);
    assert_int_equal(c->n, o.steps);
}

/* The largest and the mean difference, relative to the CPU's loss */
static void check_curve(const struct curve *found, const struct curve *want, const char *what,
                        double farthest, double mean)
{
    double most = 0, sum = 0;
    for (int i = 0; i < want->n; i++) {
        double off = fabs(found->loss[i] / want->loss[i] - 1);
        if (!(off <= most)) most = off;
        sum += off / want->n;
    }
    printf("loss of %d steps in %s beside f32 on the cpu: at most %.2g off, %.2g in the mean; from "
           "%.4f to %.4f and %.4f\n",
           want->n, what, most, sum, want->loss[0], want->loss[want->n - 1],
           found->loss[want->n - 1]);
    assert_true(most <= farthest && sum <= mean);
}

static void test_same_curve(void **state)
{
    (void)state;
    static struct curve cpu, found;
    curve_run(&cpu, device_cpu(), HEED_F32, in_place("curve-cpu"));
    curve_run(&found, device_or_cpu(), HEED_F32, in_place("curve-f32"));
    check_curve(&found, &cpu, "f32", 1e-3, 1e-4);
    curve_run(&found, device_or_cpu(), HEED_BF16, in_place("curve-bf16"));
    check_curve(&found, &cpu, "bf16", 0.05, 0.01);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedule),
        cmocka_unit_test(test_flops),
        cmocka_unit_test(test_threads_and_resume_are_exact),
        cmocka_unit_test(test_seed_and_subword_dropout_matter),
        cmocka_unit_test(test_wrong_options),
        cmocka_unit_test(test_older_checkpoint),
        cmocka_unit_test(test_damaged_checkpoint),
        cmocka_unit_test(test_checkpoints_kept_and_averaged),
        cmocka_unit_test(test_validation_text_is_read_once),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_best_by),
        cmocka_unit_test(test_patience),
        cmocka_unit_test(test_divergence_goes_back_then_ends),
        cmocka_unit_test(test_large_gradients_are_accepted),
        cmocka_unit_test(test_one_run_a_directory),
        cmocka_unit_test(test_stop_saves),
        cmocka_unit_test(test_stop_from_elsewhere),
        cmocka_unit_test(test_another_vocabulary),
        cmocka_unit_test(test_skip_at_the_end),
        cmocka_unit_test(test_patience_in_pieces),
        cmocka_unit_test(test_same_curve),
    };
    device_or_skip();
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
