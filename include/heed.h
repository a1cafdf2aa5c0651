/*
 * heed.h - the Transformer of "Attention Is All You Need" as a C library.
 *
 * The story: open an engine (a device and its kernels), train a tokenizer on raw text, train a
 * model on parallel text, load it, open a session, translate, score.
 *
 *     struct heed_error err = {0};
 *     struct heed_engine *e = heed_engine_open("cpu", 0, &err);
 *     struct heed_model *m = heed_model_load(e, "model-dir", HEED_WEIGHTS_AS_STORED, &err);
 *     struct heed_session *s = heed_session_open(m, NULL, &err);
 *     struct heed_request ask = {.text = "A dog runs."};
 *     const struct heed_answer *out;
 *     if (heed_translate(s, &ask, 1, &out, &err) == HEED_OK) puts(out->result->text);
 *
 * Every call that can fail returns a status or NULL and fills the caller's heed_error, which may be
 * NULL, with one sentence. The library never prints and never exits. Free functions accept NULL;
 * elsewhere a NULL that is not said to be allowed, or a count below 0, is HEED_EARG. An
 * engine must outlive its models and trainers, a model its sessions; strings and arrays that are
 * passed in are not kept, but for those of heed_train_options, which the trainer needs to its end.
 */
#ifndef HEED_H
#define HEED_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define HEED_API __attribute__((visibility("default")))

enum heed_status {
    HEED_OK = 0,
    HEED_ENOMEM,       /* host or device memory */
    HEED_EIO,          /* open, read, write, rename */
    HEED_EFORMAT,      /* a file is not what it says it is */
    HEED_EARG,         /* the caller's options make no sense */
    HEED_EUNSUPPORTED, /* not built in, or not on this machine */
    HEED_ENUMERIC      /* numbers are not finite: training diverged and going back did not help,
                        * or a model gives such scores */
};

struct heed_error {
    enum heed_status status;
    char text[512]; /* one sentence: what, where, found, expected */
};

HEED_API const char *heed_version(void);

/* For "did you mean ...?": the better guess at what was meant by a mistyped word, `best` or
 * `candidate`. A candidate counts only if it is a few edits away from the word or begins with it.
 * Begin with best NULL and pass each result on with the next candidate. */
HEED_API const char *heed_nearer(const char *word, const char *best, const char *candidate);

/* ---- engine: a device and its kernels ---- */

struct heed_engine;

/* An engine and its models may be used by many threads at once: to load and free models, to open
 * sessions and trainers, to read. A session or a trainer belongs to one thread at a time; what is
 * said of heed_trainer_stop is the exception. heed_engine_free comes after all of these.
 *
 * device: "cpu", "ref" (plain C, slow, the oracle) or "cuda:N". "cpu" uses the best instructions
 * that the processor has; "cpu:amx", "cpu:vnni", "cpu:avx512", "cpu:avxvnni", "cpu:avx2" and
 * "cpu:baseline", and on ARM64 "cpu:i8mm", "cpu:dotprod" and "cpu:neon", which is its baseline, use
 * these and nothing beyond, on machines that have them. threads: 0 means all cores. Each session
 * has a team of so many threads of its own: where many run side by side, give fewer. */
HEED_API struct heed_engine *heed_engine_open(const char *device, int threads,
                                              struct heed_error *err);
HEED_API void heed_engine_free(struct heed_engine *e);
/* The sets of kernels that this machine has, best first, such as "vnni", "avx512", "avx2" and
 * "baseline"; NULL where i is their number or larger. "cpu" uses the first. */
HEED_API const char *heed_cpu_kernels(int i);

/* ---- lines of text ---- */

/* Lines from UTF-8 text that is plain or compressed by gzip or xz, which is told from the first
 * bytes. What the first bytes show to be another format, UTF-16 or text without line feeds is an
 * error that says so. */
struct heed_lines;

/* A regular file; /dev/stdin and /dev/fd/N may be pipes. Other pipes, directories and devices are
 * an error. */
HEED_API struct heed_lines *heed_lines_open(const char *path, struct heed_error *err);
/* The descriptor stays open when the lines are freed; name is what errors call it. */
HEED_API struct heed_lines *heed_lines_open_fd(int fd, const char *name, struct heed_error *err);
/* The next line without its line end, of any length and not NUL-terminated; it stays valid until
 * the next call. *line is NULL at the end. Bytes are not changed: NUL and what is not UTF-8 stay.
 */
HEED_API enum heed_status heed_lines_next(struct heed_lines *l, const char **line, size_t *len,
                                          struct heed_error *err);
/* Whether heed_lines_next would return at once: a line or the end has arrived. */
HEED_API enum heed_status heed_lines_ready(struct heed_lines *l, bool *ready,
                                           struct heed_error *err);
HEED_API void heed_lines_free(struct heed_lines *l);

/* ---- tokenizer: SentencePiece; immutable after load, share freely ---- */

struct heed_tokenizer;

struct heed_tokenizer_options {
    int vocab_size;          /* pieces in all, byte fallback and tags included */
    const char *const *tags; /* user-defined pieces that are never split, such as ">>de<<" */
    int tags_n;
    int64_t sample; /* lines that are drawn from the files, all with the same probability, and
                     * trained on; they are in memory. 0: all lines */
    uint64_t seed;  /* decides which */
};

/* Trains on the lines of the files (plain, .gz or .xz; tabs separate sentences), which are read
 * twice, or once for a sample. */
HEED_API enum heed_status heed_tokenizer_train(const char *const *paths, int n,
                                               const struct heed_tokenizer_options *o,
                                               const char *out_path, struct heed_error *err);
HEED_API struct heed_tokenizer *heed_tokenizer_load(const char *path, struct heed_error *err);
HEED_API void heed_tokenizer_free(struct heed_tokenizer *t);
HEED_API int heed_tokenizer_size(const struct heed_tokenizer *t); /* NULL: 0 */
/* How the vocabulary writes an id, with U+2581 for a space; NULL where there is no such id. */
HEED_API const char *heed_tokenizer_piece(const struct heed_tokenizer *t, int32_t id);

/* ids: grown with realloc as needed; {0} is empty, free(v) releases it. */
struct heed_ids {
    int32_t *v;
    size_t n, cap;
};

/* Appends the ids of text[0..len) to out, without begin or end marks. */
HEED_API enum heed_status heed_encode(const struct heed_tokenizer *t, const char *text, size_t len,
                                      struct heed_ids *out, struct heed_error *err);
/* *text is malloced and NUL-terminated; the caller frees it. */
HEED_API enum heed_status heed_decode(const struct heed_tokenizer *t, const int32_t *id, size_t n,
                                      char **text, size_t *len, struct heed_error *err);

/* ---- configuration of the model: paper section 3, table 3 ---- */

/* Kinds. The first of each is the paper's. */
enum heed_norm {
    HEED_NORM_POST, /* "post": norm(x + sublayer(x)) */
    HEED_NORM_PRE /* "pre": x + sublayer(norm(x)), and a norm after the last layer of each stack */
};
enum heed_activation {
    HEED_ACTIVATION_RELU,  /* "relu": max(0, z) */
    HEED_ACTIVATION_GELU,  /* "gelu": z times the normal distribution function of z */
    HEED_ACTIVATION_SILU,  /* "silu": z times the logistic function of z */
    HEED_ACTIVATION_SWIGLU /* "swiglu": silu(z) times a second product, two thirds of d_ff wide */
};
enum heed_position {
    HEED_POSITION_SINUSOID, /* "sinusoid": sines and cosines are added, paper 3.5 */
    HEED_POSITION_LEARNED,  /* "learned": a learned table for each stack is added */
    HEED_POSITION_ROPE,     /* "rope": queries and keys of self-attention are rotated (RoFormer) */
    HEED_POSITION_RELATIVE, /* "relative": self-attention learns a key and a value for each distance
                             * (Shaw et al. 2018) */
    HEED_POSITION_ALIBI,    /* "alibi": scores of self-attention fall with the distance */
    HEED_POSITION_NONE      /* "none": a sentence is a bag of tokens */
};
enum heed_attention_kind {
    HEED_ATTENTION_FULL,     /* "full": every position sees all others, or all before it */
    HEED_ATTENTION_WINDOW,   /* "window": in self-attention it sees those at most `window` away and
                              * the first `global` */
    HEED_ATTENTION_ADDITIVE, /* "additive": scores by a small network (Bahdanau et al. 2015) */
    HEED_ATTENTION_LINEAR /* "linear": weights are products of elu + 1 of queries and keys, in time
                           * that grows with the length, not its square (Katharopoulos et al. 2020);
                           * attention_dropout has no effect */
};
enum heed_tie {
    HEED_TIE_ALL,     /* "all": source, target and output layer have one matrix, paper 3.4 */
    HEED_TIE_DECODER, /* "decoder": target and output layer have one, the source its own */
    HEED_TIE_NONE     /* "none": each has its own */
};

enum heed_ff {
    HEED_FF_DENSE, /* "dense": every token passes through the same network, paper 3.3 */
    HEED_FF_MOE    /* "moe": a router sends each token to some of several networks (experts) */
};

/* What training keeps of a layer between forward and backward. */
enum heed_recompute {
    HEED_RECOMPUTE_NONE, /* "none": every activation that backward reads */
    HEED_RECOMPUTE_LAYER /* "layer": its input; backward computes the layer again */
};

struct heed_config {
    int d_model, d_ff, heads;
    int encoder_layers, decoder_layers;
    int vocab_size;
    int max_length;                     /* longest sentence in tokens, end mark included */
    float dropout;                      /* on sub-layer outputs and on embeddings + positions */
    float attention_dropout;            /* on attention weights */
    float ff_dropout;                   /* inside the feed-forward */
    enum heed_norm norm;                /* where the layer norm of a sub-layer is */
    enum heed_activation activation;    /* of the feed-forward */
    enum heed_position position;        /* how the model knows the order of tokens */
    enum heed_attention_kind attention; /* which positions see which, and how they are compared */
    int window, global;                 /* HEED_ATTENTION_WINDOW: see there */
    bool bias;                          /* biases on the projections of attention */
    enum heed_tie tie;                  /* which embeddings share a matrix */
    int kv_heads; /* heads of keys and values, each shared by heads / kv_heads query heads; 0: as
                   * many as heads */
    int d_k, d_v; /* widths of a head's keys and values; 0: d_model / heads */
    enum heed_recompute recompute;  /* less memory for more time in training; the same weights */
    enum heed_ff ff;                /* the feed-forward of every layer */
    int experts, experts_per_token; /* with HEED_FF_MOE: experts of a layer, and how many of them a
                                     * token is sent to; 0: 8, and 2 */
};

/* name: tiny, small, base or big. vocab_size is left 0. */
HEED_API enum heed_status heed_config_preset(struct heed_config *c, const char *name,
                                             struct heed_error *err);

/* Each member of struct heed_config is described once, by a struct heed_config_field. config.json
 * and the model options of `heed train` are made from these descriptions. */
enum heed_field_type {
    HEED_FIELD_INTEGER, /* the member is an int from min to max */
    HEED_FIELD_RATE,    /* the member is a float of at least 0 and less than 1 */
    HEED_FIELD_KIND,    /* the member is an enum whose values have names */
    HEED_FIELD_SWITCH   /* the member is a bool; its option takes no value */
};

struct heed_config_field {
    const char *name; /* of the member, which is also the key in config.json */
    size_t offset;    /* of the member in struct heed_config */
    enum heed_field_type type;
    int min, max;             /* HEED_FIELD_INTEGER: both are allowed */
    const char *const *kinds; /* HEED_FIELD_KIND: the name of each value of the enum, then NULL */
    const char *absent; /* value of a config.json without the key, as heed_config_set reads it;
                         * NULL: the key is required */
    const char *option; /* of `heed train`, without "--"; NULL: there is none */
    const char *help;   /* what the field is, in a few words */
};

/* Field i, from 0; NULL where there is no such field. Valid for ever. */
HEED_API const struct heed_config_field *heed_config_field_at(int i);
/* Sets the field with this name, or this option, to what the text says: "512", "0.1", "relu",
 * "true". The range of that one field is checked. The sentence of an error begins with `name`,
 * unless there is no such field. */
HEED_API enum heed_status heed_config_set(struct heed_config *c, const char *name, const char *text,
                                          struct heed_error *err);

/* One sentence for the first field that is out of its range, or the first fields that do not go
 * together. vocab_size may be 0: not known yet. */
HEED_API enum heed_status heed_config_check(const struct heed_config *c, struct heed_error *err);

/* ---- training ---- */

enum heed_precision { HEED_F32, HEED_BF16 };

/* How training in this precision is computed on the engine's device, where that is not what its
 * name says: one sentence for a person, such as that bf16 is multiplied in f32 because the
 * processor is faster so. NULL: there is nothing to say, or e is NULL. */
HEED_API const char *heed_engine_note(const struct heed_engine *e, enum heed_precision precision);

/* Parallel text: n source files with n target files line by line, or, where tgt is NULL, n files
 * of tab-separated pairs. Training text that is made of several files may be mixed by weight or by
 * temperature; elsewhere both are ignored. */
struct heed_corpus {
    const char *const *src, *const *tgt;
    int n;
    const double *weight; /* [n] how often an epoch reads each pair of a file: 2: twice; 0.5: it
                           * reads half of them, and the next epoch the others; NULL: once */
    double temperature;   /* T: files are read in proportion to their number of pairs to the power
                           * of 1/T, as many pairs an epoch as there are; 0: by weight */
};

enum heed_event_kind {
    HEED_EVENT_START,    /* the model and the data are open */
    HEED_EVENT_STEP,     /* after every optimizer step */
    HEED_EVENT_SKIP,     /* the step's gradient was not usable; parameters unchanged */
    HEED_EVENT_ROLLBACK, /* several skips in a row: back to the last good checkpoint */
    HEED_EVENT_VALID,    /* validation finished */
    HEED_EVENT_SAVE,     /* a checkpoint is on disk */
    HEED_EVENT_DONE,     /* last event of a run that ends well, interrupted or not */
    HEED_EVENT_INDEX /* before the start, now and then: large text is searched for its lines, and
                      * `indexed` says how far; not in log.jsonl */
};

/* What a step asked of an expert. A choice is a token sent to an expert, so a token has as many
 * choices in each layer as experts_per_token says. */
struct heed_expert {
    double share;   /* part of the choices of its layer that named the expert */
    double dropped; /* part of these that were beyond its capacity */
};

/* What a run has read of a file of its training text. */
struct heed_read {
    const char *file; /* of heed_corpus.src */
    int64_t pairs;    /* that it has */
    double weight;    /* how often an epoch reads each of them, on average */
    double times;     /* how often the run has read each of them, on average */
};

struct heed_event {
    enum heed_event_kind kind;
    int64_t step, epoch;
    int64_t steps;   /* of the whole run */
    double loss;     /* label-smoothed, per target token, since the last event of this kind */
    double lr;       /* learning rate of this step */
    double norm;     /* gradient norm before clipping */
    double tokens_s; /* target tokens per second, smoothed */
    double seconds;  /* since the start of this run */
    double seconds_to_go;
    /* HEED_EVENT_STEP and HEED_EVENT_SKIP: tokens of the step, marks included, and floating-point
     * operations of its matrix products, forward and backward; a multiplication and an addition are
     * two */
    int64_t source_tokens, target_tokens;
    double flops;
    double waited;      /* seconds of the step in which this rank or its device waited for others */
    double text_waited; /* ... and in which this rank waited for text: see docs/file-formats.md */
    double indexed;     /* HEED_EVENT_INDEX: part of the text that is done, 0 to 1 */
    double nll, perplexity, bleu, chrf; /* HEED_EVENT_VALID; the scores are < 0 when not computed */
    bool best;                          /* HEED_EVENT_VALID: the best so far */
    const char *text;                   /* a sentence for a person, or NULL */
    /* HEED_EVENT_STEP and HEED_EVENT_SKIP of a model with experts: [layers * experts], encoder
     * layers first, during the call; NULL otherwise */
    const struct heed_expert *expert;
    int layers, experts;
    /* HEED_EVENT_START and HEED_EVENT_DONE: [reads] the files of the training text, during the
     * call; NULL otherwise */
    const struct heed_read *read;
    int reads;
};

/* The figure of a validation that decides which is the best, for OUT/best and for patience: the
 * lowest -log p per token, or the highest score of the translation. */
enum heed_best { HEED_BEST_NLL, HEED_BEST_BLEU, HEED_BEST_CHRF };

/* How the learning rate goes on after it has risen to its peak over the warm-up. */
enum heed_schedule {
    HEED_SCHEDULE_INVERSE_SQRT, /* "inverse-sqrt": falls with the inverse square root of the step
                                 * (paper 5.3) */
    HEED_SCHEDULE_CONSTANT      /* "constant": stays */
};

/* The processes of a job that train one model or translate one text together, its ranks; mpirun or
 * srun starts them. */
struct heed_cluster;

struct heed_cluster_options {
    int ranks; /* as the launcher says; MPI must know of as many. 0: as many as MPI knows of */
    /* Called by a thread of the cluster, with one sentence for a person, where another rank does
     * not answer any more. Afterwards the job ends, this process included. May be NULL. */
    void (*lost)(void *user, const char *sentence);
    void *user;
};

/* Joins the job that this process was started for. A process can do so once, before others of the
 * library's calls. HEED_EUNSUPPORTED where heed was built without MPI. */
HEED_API struct heed_cluster *heed_cluster_open(const struct heed_cluster_options *o,
                                                struct heed_error *err);
/* Leaves the job; waits for all ranks to do so. Where a call failed on this rank alone, it ends the
 * job instead, this process included, with exit code 1. */
HEED_API void heed_cluster_free(struct heed_cluster *c);
/* Ends all processes of the job, this one included, with exit code 1. */
HEED_API void heed_cluster_abort(struct heed_cluster *c);
/* Without a cluster (NULL) there is one rank, which is 0. */
HEED_API int heed_cluster_rank(const struct heed_cluster *c);
HEED_API int heed_cluster_ranks(const struct heed_cluster *c);
/* The number of this rank among those on its host. */
HEED_API int heed_cluster_local_rank(const struct heed_cluster *c);
/* Valid as long as the cluster; NULL where there is no such rank. */
HEED_API const char *heed_cluster_host(const struct heed_cluster *c, int rank);
/* Whether this rank is the one to report an error, after a call failed: where it failed on all
 * ranks, rank 0. */
HEED_API bool heed_cluster_reports(const struct heed_cluster *c);

/* Ends a part of the caller's own work that may have failed on some ranks: the status and the
 * sentence of the first rank where it did, on all ranks. Called on every rank. */
HEED_API enum heed_status heed_cluster_agree(struct heed_cluster *c, enum heed_status status,
                                             struct heed_error *err);

/* Work that rank 0 hands out in blocks of bytes, and whose answers it takes in the order of the
 * blocks. Each call returns HEED_OK, or a status that ends the work. Results are malloced. */
struct heed_handout {
    /* Rank 0: the next block; *block stays NULL where there are no more. */
    enum heed_status (*next)(void *user, char **block, size_t *bytes);
    /* Any rank: the answer to a block. */
    enum heed_status (*work)(void *user, const char *block, size_t bytes, char **answer,
                             size_t *answer_bytes);
    /* Rank 0: the answer to the oldest block that has none yet. */
    enum heed_status (*take)(void *user, const char *answer, size_t bytes);
    void *user;
};
/* Called on every rank; returns when the work is done. */
HEED_API enum heed_status heed_cluster_hand_out(struct heed_cluster *c,
                                                const struct heed_handout *h,
                                                struct heed_error *err);

/* Which way gradients and parameters go between ranks that train on GPUs. Ranks that train on CPUs
 * exchange them by MPI, and know "auto" and "host" alone. */
enum heed_link {
    HEED_LINK_AUTO, /* "auto": by NCCL where every rank has a GPU of its own and NCCL can be opened
                     * on all of them; otherwise as "host" */
    HEED_LINK_HOST, /* "host": through the memory of the hosts, by MPI, after backward */
    HEED_LINK_NCCL  /* "nccl": from GPU to GPU by NCCL, while backward goes on, also where ranks
                     * share a GPU; an error where NCCL cannot be opened */
};

/* The order in which the gradients of ranks are added. */
enum heed_sum {
    HEED_SUM_EXACT, /* "exact": that of the shards; the weights do not depend on the ranks */
    HEED_SUM_FAST   /* "fast": one that NCCL chooses; the weights depend on the number of ranks and
                     * on how they are connected. Needs NCCL */
};

struct heed_train_options {
    struct heed_corpus train, valid; /* valid.n == 0: no validation */
    const char *vocab;               /* SentencePiece model file */
    const char *out;                 /* output directory; docs/file-formats.md lists its files */
    struct heed_config config;       /* vocab_size 0: taken from the vocabulary */
    enum heed_precision precision;
    uint64_t seed;
    int64_t steps;    /* optimizer steps in all */
    int batch_tokens; /* at most this many tokens on each side of a batch */
    int accumulate;   /* batches per optimizer step */
    /* Parts that each batch is cut into, a power of two. The weights depend on it, and not on the
     * number of ranks that share the parts. 0: that of the run which is resumed; for a new run 1,
     * or with a cluster 8 or the number of ranks if that is larger. */
    int shards;
    struct heed_cluster *cluster; /* NULL: this process trains alone */
    enum heed_link link;          /* which way ranks exchange gradients */
    enum heed_sum sum;            /* how they add them */
    int warmup;                   /* steps */
    float peak_lr;                /* 0: the paper's D^-0.5 * warmup^-0.5 */
    enum heed_schedule schedule;
    int train_length; /* longest sentence of the training text in tokens, end mark included; pairs
                       * with a longer one are left out; 0: config.max_length */
    float beta1, beta2, epsilon;
    float label_smoothing;
    float subword_dropout;      /* part of BPE's joins left out of the training text; 0: none */
    float clip;                 /* gradient norm; 0: no clipping */
    int64_t valid_every;        /* steps; 0: only at the end */
    bool valid_bleu;            /* translate the validation source and score it */
    const char *valid_tokenize; /* for its BLEU: see heed_bleu */
    enum heed_best best_by;     /* but for HEED_BEST_NLL, the source is translated in any case */
    int patience;               /* validations without a better result before stopping; 0: never */
    int64_t save_every;         /* steps; 0: only at the end */
    int keep;                   /* newest checkpoints kept, besides the best */
    /* Go on from the newest checkpoint in out, or, if that is damaged, from the one before. Only
     * steps, valid_every, valid_bleu, patience, save_every, keep, link, sum and event may differ
     * from what the run began with, and valid_tokenize unless best_by is HEED_BEST_BLEU; validation
     * text may be new to the run. */
    bool resume;
    void (*event)(void *user, const struct heed_event *e); /* may be NULL */
    void *user;
};

HEED_API struct heed_train_options heed_train_defaults(void);

struct heed_trainer;
HEED_API struct heed_trainer *heed_trainer_open(struct heed_engine *e,
                                                const struct heed_train_options *o,
                                                struct heed_error *err);
/* Runs to the last step, to the end of patience or until heed_trainer_stop; a checkpoint is saved
 * in each case. */
HEED_API enum heed_status heed_trainer_run(struct heed_trainer *t, struct heed_error *err);
/* Asks heed_trainer_run to finish its step, save and return; asked before, it returns at once. From
 * any thread, a signal handler or an event, as long as the trainer lives. A trainer that was
 * stopped stays so: to go on, open another with `resume`. */
HEED_API void heed_trainer_stop(struct heed_trainer *t);
HEED_API void heed_trainer_free(struct heed_trainer *t);

/* The mean of the parameters of n checkpoints, written as a model directory. out is none of them,
 * nor the directory of a training run, its checkpoints or its best. */
HEED_API enum heed_status heed_average(const char *const *dirs, int n, const char *out,
                                       struct heed_error *err);

/* ---- translation ---- */

struct heed_model;   /* immutable weights and tokenizer; share freely */
struct heed_session; /* one thread's decoding state */

/* The type of the weights in matrix products. Smaller weights are faster; with bf16 and int8 the
 * activations that are multiplied with them are rounded too. */
enum heed_weights {
    HEED_WEIGHTS_AS_STORED,
    HEED_WEIGHTS_F32,
    HEED_WEIGHTS_BF16,
    HEED_WEIGHTS_INT8
};

/* Writes a copy of a model directory with its matrices in bf16 or int8. out is another directory,
 * and not that of a training run, its checkpoints or its best. */
HEED_API enum heed_status heed_quantize(const char *dir, enum heed_weights weights, const char *out,
                                        struct heed_error *err);

/* On a CPU, a file with int8 weights stays mapped as long as the model lives: it may be replaced by
 * renaming another file over it, but must not be overwritten or shortened. */
HEED_API struct heed_model *heed_model_load(struct heed_engine *e, const char *dir,
                                            enum heed_weights weights, struct heed_error *err);
HEED_API void heed_model_free(struct heed_model *m);
/* Both are valid as long as the model; NULL where m is NULL. */
HEED_API const struct heed_config *heed_model_config(const struct heed_model *m);
HEED_API const struct heed_tokenizer *heed_model_tokenizer(const struct heed_model *m);
/* The languages that a model translates to, such as "de", from the tags of its vocabulary (>>de<<).
 * Returns how many there are; 0 where the vocabulary has no tags, or m is NULL: *out is untouched
 * then. Valid as long as the model. */
HEED_API int heed_model_languages(const struct heed_model *m, const char *const **out);
/* How many parameters it has, and the type of its weights as it multiplies with them; 0 and
 * HEED_WEIGHTS_AS_STORED where m is NULL. */
HEED_API int64_t heed_model_parameters(const struct heed_model *m);
HEED_API enum heed_weights heed_model_weights(const struct heed_model *m);

/* How a text is translated. */
struct heed_translate_options {
    int beam;             /* hypotheses of the beam search, 1 to 64; 1: greedy */
    int nbest;            /* translations in the answer, at most beam */
    float length_penalty; /* a translation's score is logp / ((5 + tokens) / 6)^length_penalty */
    int min_length;       /* fewest tokens of a translation, without the end mark */
    int max_length;       /* most tokens of a translation, with the end mark; 0: 50 more than the
                           * text has (paper 6.1); never more than the model takes */
    int no_repeat_ngram;  /* no n-gram of this many tokens comes twice; 0: repeats are allowed */
    /* Sampling instead of beam search, where temperature is not 0: `beam` translations are sampled
     * from the probabilities, whose logarithms are divided by the temperature. */
    float temperature;
    int top_k;      /* from the top_k likeliest tokens, at most 256; 0: from 256 */
    float top_p;    /* from the likeliest tokens whose probabilities sum up to top_p; 0: from all */
    uint64_t seed;  /* the same seed samples the same translations */
    const char *to; /* the language to translate to, such as "de", for a model of several; NULL: a
                     * tag such as >>de<< at the front of the text says it */
    bool align;     /* the answer says which words come from which */
    bool trace;     /* the answer has every hypothesis of the beam search: see heed_beam_node */
};

/* The paper's (6.1): beam 4, length penalty 0.6. */
HEED_API struct heed_translate_options heed_translate_defaults(void);

/* A text to be translated and what is asked of its translations. Only `text` has to be set:
 * struct heed_request r = {.text = "A dog runs."};
 * A prefix and phrases are found as the tokens that the vocabulary makes of them. */
struct heed_request {
    const char *text;                             /* UTF-8 */
    const struct heed_translate_options *options; /* NULL: heed_translate_defaults() */
    const char *prefix;          /* every translation begins with it; NULL: with anything */
    const char *const *required; /* [required_n] phrases in every translation, at most 16; not with
                                  * sampling, nor for a text that is translated in several pieces */
    const char *const *banned;   /* [banned_n] phrases in no translation, at most 256 */
    int required_n, banned_n;
    /* A translation that is scored instead of searching for one; NULL: search. It is the only one
     * of the answer, and is taken as one sentence, as is the text. A translation that a search
     * found gets the score it had, if the vocabulary makes the same tokens of it. No prefix and no
     * phrase may be asked for, and only length_penalty, to and align have an effect. */
    const char *given;
};

struct heed_span {
    size_t at, len; /* bytes of a text */
};

/* Words are those of Unicode's UAX #29; a punctuation mark is a word too. */
struct heed_alignment {
    const struct heed_span *source, *target; /* the words of the two texts */
    int sources, targets;
    const int *link; /* [targets] the source word that each attends to most; -1: none */
};

/* A translation. */
struct heed_result {
    const char *text; /* UTF-8, NUL-terminated */
    size_t len;
    int tokens;        /* with the end mark, unless it was cut; of several sentences, all of them */
    const int32_t *id; /* [tokens] */
    const float *token_logp; /* [tokens] their log-probabilities */
    float logp;              /* their sum */
    float score;             /* results are ordered by it, but those that were cut come last */
    unsigned flags; /* what went wrong, see heed_flag; but for HEED_FLAG_UNSPELLED, of the best
                     * result only */
    /* Stretches of the text that the vocabulary cannot spell (see below heed_flag): those that were
     * copied into the translation, and those that were not. left_out has the bytes that were taken
     * out of the translation as well. */
    const char *const *copied, *const *left_out;
    int copied_n, left_out_n;
    const struct heed_alignment *alignment; /* of the best result, if options->align and the text
                                             * is valid UTF-8; else NULL */
};

/* A hypothesis of the beam search at one step: its last token, and the hypothesis that it goes on
 * from. Nodes are in order of the steps and, within a step, in the order in which the search takes
 * them: best first, unless phrases are required. A translation that is sampled or given, and the
 * prefix, is a chain of nodes which are all kept. */
struct heed_beam_node {
    int parent;    /* number of the node that it goes on from; -1: this is a first token */
    int32_t id;    /* its last token */
    float logp;    /* log-probability of that token */
    float score;   /* of the whole hypothesis, with the length penalty */
    bool kept;     /* the search went on with it, or finished it; false: it fell out of the beam. Of
                    * these there are the best of each step, at most as many as the beam is wide */
    bool finished; /* its last token is the end mark */
    int result;    /* number of the result whose last token it is; -1: of none */
};

/* The answer to a request. */
struct heed_answer {
    const struct heed_result *result; /* [n] the translations, best first */
    int n; /* at least 1, at most options->nbest; less than that where no more were found */
    /* HEED_OK, or why a request has no translation: it cannot be translated as asked (HEED_EARG),
     * or the model gives no finite scores (HEED_ENUMERIC). Its only result is the empty text then.
     * The other requests of the call are not affected. */
    enum heed_status status;
    const char *why; /* one sentence; NULL with HEED_OK */
    /* [beams] with options->trace, the hypotheses of the search that found the results; NULL where
     * there was no search, and for a text that is translated in several pieces */
    const struct heed_beam_node *beam;
    int beams;
};

/* A translation that repeats itself or has no end is searched for a second time with
 * no_repeat_ngram 3, unless the options set one. */
enum heed_flag {
    HEED_FLAG_LOOP = 1,      /* repeats itself */
    HEED_FLAG_COPY = 2,      /* equals its source */
    HEED_FLAG_CUT = 4,       /* reached its longest length without an end mark */
    HEED_FLAG_RETRIED = 8,   /* was searched for a second time, whether that helped or not */
    HEED_FLAG_UNSPELLED = 16 /* `copied` or `left_out` is not empty */
};
/* What the flag with the value 1 << i is called: "loop", "copy", "cut", "retried", "unspelled";
 * NULL where there is no such flag. */
HEED_API const char *heed_flag_name(int i);

/*
 * A character that the vocabulary has no piece for is spelled in bytes. Where nearly all characters
 * of its training text had pieces (its character coverage is at least 0.9999), the model has hardly
 * seen any bytes and makes things up where it reads them. Such characters are not given to the
 * model, together with the word, the markup tag or the path that they are part of. They are copied
 * to the place in the translation where the words around them went. Where the vocabulary has
 * another form of the same characters, the model reads that form instead: digits of another width,
 * a letter joined with its combining mark, the simplified form of a traditional Chinese character.
 * A Chinese character among others that are read, and characters that cannot be seen, such as
 * control characters, are left out. Bytes that the model makes up itself are left out as well,
 * unless the prefix or a required phrase has them. Scores and tokens are those of what the model
 * read and found. Of a translation that is given, only what can be spelled is scored.
 */

struct heed_session_options {
    int batch_tokens; /* tokens of source text translated at once, at most 1,000,000: memory grows
                       * with it; 0: what suits the device */
};

/* o may be NULL: the defaults. */
HEED_API struct heed_session *heed_session_open(const struct heed_model *m,
                                                const struct heed_session_options *o,
                                                struct heed_error *err);
/* Translates n texts, each by its own options; (*out)[i] answers request[i]. Answers stay valid
 * until the next call on this session. The more texts a call has, the faster it is, and on a CPU
 * the translation of a text is the same to the last bit whatever the other texts are.
 *
 * A text longer than 100 tokens, or than the model takes, is translated sentence by sentence; its
 * scores are sums over the sentences, and its k-th best translation is made of their k-th best. A
 * text of white space has the empty translation; a tab or a line end inside a text is a space to
 * the model. A tag such as >>de<< at the front of a text says the language to translate to, unless
 * options->to does; elsewhere it is text. */
HEED_API enum heed_status heed_translate(struct heed_session *s, const struct heed_request *request,
                                         int n, const struct heed_answer **out,
                                         struct heed_error *err);

/* Requests that come one by one and are translated together: a request joins those that are under
 * way, and gets the same answer as from heed_translate. All calls are made by the thread that uses
 * the session:
 *
 *     heed_submit(s, &request, &request, &err);
 *     while (heed_advance(s, &err) == HEED_OK && !(answer = heed_finished(s, &user))) continue;
 *
 * heed_submit adds a request; `user` tells it from others. The request, and what it points to, must
 * live until its answer is taken. heed_advance decodes one more token of every translation that is
 * under way; after a failure no request is under way any more. heed_finished returns the answer to
 * a request that is finished, which stays valid until the next call of it, or NULL. heed_cancel
 * takes back the requests with this `user`; it may be called at any time. */
HEED_API enum heed_status heed_submit(struct heed_session *s, const struct heed_request *request,
                                      const void *user, struct heed_error *err);
HEED_API enum heed_status heed_advance(struct heed_session *s, struct heed_error *err);
HEED_API const struct heed_answer *heed_finished(struct heed_session *s, const void **user);
HEED_API void heed_cancel(struct heed_session *s, const void *user);
/* The translation so far of a request that is under way: the best translations of its sentences up
 * to the first that is not finished, and the best hypothesis of that one, which may have to give
 * way to another one in the next step. Nothing is put back into it that the vocabulary cannot
 * spell. Valid until the next call on this session. NULL: no request with this `user` is under way,
 * or memory is short. */
HEED_API const char *heed_partial(struct heed_session *s, const void *user);

HEED_API void heed_session_free(struct heed_session *s);

/* ---- the language of a text ---- */

struct heed_detection {
    const char *language; /* one of those to choose from */
    float confidence;     /* 0 to 1; all of them sum up to at most 1 */
};
/* Which of the n languages `known` (BCP 47 codes such as "de" and "zh") a text is written in: all
 * of them, the likeliest first, in out[n]. Returns n; 0 where there are none or a pointer is NULL.
 * What is left of 1 is the chance that it is none of them, or cannot be told: a text without
 * letters says nothing. */
HEED_API int heed_detect_language(const char *text, const char *const *known, int n,
                                  struct heed_detection *out);

/* ---- looking inside ---- */

/* The three uses of attention (paper 3.2.3). */
enum heed_attention_use {
    HEED_USE_ENCODER, /* self-attention of the encoder: tokens of the source look at each other */
    HEED_USE_DECODER, /* self-attention of the decoder: a token of the translation looks at itself
                       * and at those before it */
    HEED_USE_CROSS,   /* cross-attention: tokens of the translation look at the source */
    HEED_USES
};

/* The weight that every token gave to every other, in every layer and head of one use. Each row of
 * keys sums up to 1. */
struct heed_attention_map {
    int layers, heads, queries, keys;
    /* Tokens, marks included. In cross-attention a query is the token that the decoder produced
     * with it. In self-attention of the decoder, queries and keys are the tokens that were fed in:
     * the begin mark, then the translation without its last token. */
    const char *const *query, *const *key;
    const float *weight; /* [layers][heads][queries][keys] */
};

/* The attention of a translation. */
struct heed_attention {
    struct heed_attention_map map[HEED_USES]; /* by enum heed_attention_use */
    int align_layer;                          /* of cross-attention: alignments are read from it */
};

/* The attention of the best translation of a text, or of the one that is given, from one pass over
 * both with the weights that translate. The text must be translated in one piece. *out is freed by
 * heed_attention_free, before the model is. */
HEED_API enum heed_status heed_attention_of(struct heed_session *s,
                                            const struct heed_request *request,
                                            struct heed_attention **out, struct heed_error *err);
HEED_API void heed_attention_free(struct heed_attention *a);

/* What a picture is written as; functions that draw say which of these they know. */
enum heed_picture {
    HEED_PICTURE_SVG,      /* follows the reader's color scheme, light or dark */
    HEED_PICTURE_TERMINAL, /* lines of characters */
    HEED_PICTURE_JSON,     /* the numbers */
    HEED_PICTURE_HTML,     /* one page that needs no other file */
    HEED_PICTURE_MARKDOWN  /* a report */
};
enum heed_theme { HEED_THEME_LIGHT, HEED_THEME_DARK };
/* A PNG of a picture in SVG, with `scale` pixels for each of the SVG's. *png is malloced and has
 * *n bytes. HEED_EUNSUPPORTED where librsvg, which is loaded for this call, is not installed. */
HEED_API enum heed_status heed_png_of_svg(const char *svg, enum heed_theme theme, double scale,
                                          unsigned char **png, size_t *n, struct heed_error *err);

enum heed_drawing {
    HEED_DRAW_MAP,   /* a cell for each pair of tokens of one layer; the darker, the more weight */
    HEED_DRAW_LINES, /* tokens in two columns and lines between them, as thick as their weight, in a
                      * colour for each head (the paper's figures 3 to 5) */
    HEED_DRAW_GRID   /* a small map of every layer and head */
};

/* What a picture of attention shows. {0} is the encoder's first layer and head. */
struct heed_attention_view {
    enum heed_attention_use use; /* HEED_USES: all of them, in a grid */
    enum heed_drawing drawing;
    int layer; /* counted from 0; a grid shows all */
    int head;  /* counted from 0; -1: the mean of the heads in a map, all heads in a line drawing */
    /* HEED_PICTURE_TERMINAL: colours that the terminal has, 0 (then there are shades of characters)
     * 256 or 1 << 24, and how many characters a line has; 0: 80 */
    int colours, columns;
};

/* HEED_PICTURE_TERMINAL draws maps and grids. HEED_PICTURE_JSON has all numbers, whatever the view;
 * HEED_PICTURE_HTML has them in thousandths, and begins with the view. *out is malloced and
 * NUL-terminated. */
HEED_API enum heed_status heed_attention_picture(const struct heed_attention *a,
                                                 enum heed_picture kind,
                                                 const struct heed_attention_view *view, char **out,
                                                 struct heed_error *err);

/* A matrix of numbers to be drawn as a heat map. */
struct heed_heat_map {
    const char *title;
    const char *row, *col; /* what the rows and the columns are, such as "position" */
    int first_row,
        first_col; /* the numbers of the first row and column; distances may be below 0 */
    int rows, cols;
    const float *value; /* [rows][cols] */
};

/* Numbers to be drawn as lines over one x axis. */
struct heed_chart {
    const char *title;
    const char *x_label, *y_label;
    bool y_log; /* the y axis is logarithmic */
    int n;      /* values of each line */
    int lines;
    const char *const *name; /* [lines] */
    const double *x;         /* [n] */
    const double *y;         /* [lines][n] */
};

/* How a model tells positions apart (paper 3.5):
 * sinusoid, rope: the table of sines and cosines, dot products over distance, and wavelengths.
 * learned: the tables of both stacks, and how much alike rows at a distance are.
 * relative: lengths of the vectors that self-attention has learned for each distance.
 * alibi: what the distance takes from a score in each head.
 * none: nothing but a sentence. */
struct heed_positions {
    enum heed_position kind;
    const char *title;
    const char *const *said; /* [said_n] what was measured, in sentences */
    int said_n;
    const struct heed_heat_map *map; /* [maps] */
    int maps;
    const struct heed_chart *chart; /* [charts] */
    int charts;
};

/* The positions of a model, or, where m is NULL, the paper's sinusoid of d_model dimensions.
 * length: positions and distances that are looked at, 8 to 1024; 0: 128. Where a model has learned
 * fewer positions, these. *out is freed by heed_positions_free. */
HEED_API enum heed_status heed_positions_of(const struct heed_model *m, int d_model, int length,
                                            struct heed_positions **out, struct heed_error *err);
HEED_API void heed_positions_free(struct heed_positions *p);
/* SVG, terminal or JSON. *out is malloced and NUL-terminated. */
HEED_API enum heed_status heed_positions_picture(const struct heed_positions *p,
                                                 enum heed_picture kind, char **out,
                                                 struct heed_error *err);

/* The embeddings of a model: a vector for each piece of its vocabulary (paper 3.4), less the mean
 * of all, scaled to length 1. */
struct heed_embeddings;

/* Whose embeddings: where the model has one matrix (HEED_TIE_ALL), both are the same. */
enum heed_side { HEED_SIDE_SOURCE, HEED_SIDE_TARGET };

/* The model must outlive the embeddings. */
HEED_API struct heed_embeddings *heed_embeddings_open(const struct heed_model *m,
                                                      enum heed_side side, struct heed_error *err);
HEED_API void heed_embeddings_free(struct heed_embeddings *e);
/* Appends the pieces of a word, or of a phrase. HEED_EARG where the word is empty, or the
 * vocabulary cannot spell it. The vector of a word is the mean of those of its pieces, scaled to
 * length 1. */
HEED_API enum heed_status heed_embeddings_pieces(const struct heed_embeddings *e, const char *word,
                                                 struct heed_ids *out, struct heed_error *err);

/* A piece of the vocabulary near a vector. */
struct heed_neighbour {
    int32_t id;
    const char *piece; /* with U+2581 in place of a space; valid as long as the model */
    float cosine;
};

/* The `count` pieces whose vectors have the largest cosine with the sum of the vectors of the words
 * plus[] less those of minus[]: with one word its neighbours, with {a, c} and {b} the answer to
 * "a - b + c". Left out are the words themselves and their pieces, and pieces that stand for marks,
 * tags or bytes. out has room for count; *found are there, best first. */
HEED_API enum heed_status heed_neighbours(const struct heed_embeddings *e, const char *const *plus,
                                          int plus_n, const char *const *minus, int minus_n,
                                          int count, struct heed_neighbour *out, int *found,
                                          struct heed_error *err);

/* Words on a plane: their vectors, less the mean, on the two principal components, which are the
 * directions in which the vectors differ most. */
struct heed_word_map {
    int n;
    const char *const *word; /* [n] */
    const double *x, *y;     /* [n] */
    double share[2];         /* part of the variance of the vectors along each direction */
};

/* Of 3 to 1000 words. *out is freed by heed_word_map_free. */
HEED_API enum heed_status heed_word_map_of(const struct heed_embeddings *e, const char *const *word,
                                           int n, struct heed_word_map **out,
                                           struct heed_error *err);
HEED_API void heed_word_map_free(struct heed_word_map *m);
/* SVG, terminal (a table of the coordinates) or JSON. *out is malloced and NUL-terminated. */
HEED_API enum heed_status heed_word_map_picture(const struct heed_word_map *m,
                                                enum heed_picture kind, char **out,
                                                struct heed_error *err);

/* What a head does with most of its weight, over a whole corpus. A share is a mean over the queries
 * that see more than one key. In self-attention the centre of a query is its own position; in
 * cross-attention it is the source token that the layer of alignments gives most weight to. */
enum heed_role {
    HEED_ROLE_PREVIOUS, /* at least half of it is on the token before the centre */
    HEED_ROLE_SAME,     /* ... on the centre: in cross-attention this is the alignment of words */
    HEED_ROLE_NEXT,     /* ... on the token after the centre */
    HEED_ROLE_REST,     /* ... at the front and at the end, where weight does no harm: see below */
    HEED_ROLE_NEARBY,   /* ... within one token of the diagonal, but on none of these alone */
    HEED_ROLE_BROAD, /* none of these, and the entropy is at least 0.8 of that of equal weights */
    HEED_ROLE_SELECTIVE, /* none of these, and the entropy is at most 0.5 of it: few tokens have the
                          * weight, and no place says which */
    HEED_ROLE_MIXED,     /* none of these */
    HEED_ROLES
};

struct heed_head {
    enum heed_attention_use use;
    int layer, head;             /* counted from 0 */
    double entropy;              /* of the weights of a query, mean, in bits */
    double relative;             /* entropy, divided by that of equal weights on all visible keys */
    double distance;             /* of the weight from the centre, in tokens */
    double previous, same, next; /* share on the token before the centre, on it, after it */
    double diagonal;   /* share within one token of the diagonal, which is the query's own position
                        * or, in cross-attention, as far along the source as along the target */
    double first, end; /* share on the first token of the keys, and on all tokens of the tag of a
                        * language; on the end mark of the source and a full stop before it */
    enum heed_role role;
    double alike;     /* the largest mean cosine of its weights with those of another head of its
                       * layer */
    double loss_lost; /* loss of the model without this head less its loss with it, in nats a token;
                       * NAN: not measured */
    double bleu_lost; /* BLEU with this head less BLEU without it; NAN: not measured */
};

/* The sentence that shows best what one head does. */
struct heed_head_example {
    const char *name; /* "encoder-previous", "long-distance", "anaphora" and so on: what it shows */
    int head;         /* number of the head in heed_heads */
    int sentence;     /* its line, counted from 0 */
    double score;     /* share of the role; or weight of the pair, less the mean weight that all
                       * tokens give to its key */
    int query, key;   /* the pair of tokens; -1: all of them show the role */
    int distance;     /* of the pair */
};

struct heed_heads {
    const struct heed_head *head; /* [n] encoder, decoder, cross; by layer, then by head */
    int n;
    int layers[HEED_USES], heads; /* layers of each use, heads of a layer */
    /* [layers*heads][layers*heads] mean cosine of the weights of two heads of one use: 1 means that
     * they do the same */
    const float *alike[HEED_USES];
    double loss;               /* nats a token, with all heads */
    double bleu;               /* NAN: not measured */
    int64_t sentences, tokens; /* measured: tokens of the target with their end marks */
    int64_t sentences_all;     /* to be measured; more than sentences: it was stopped */
    int64_t skipped;           /* pairs that cannot be measured: an empty or overlong side */
    const struct heed_head_example *example; /* [examples] */
    int examples;
};

enum heed_mask { HEED_MASK_NONE, HEED_MASK_LOSS, HEED_MASK_BLEU };

struct heed_heads_options {
    const char *const *src, *const *tgt; /* [n] the sentences and their translations */
    int n;
    const char *to;       /* language of the translations, for a model of several; or NULL */
    enum heed_mask mask;  /* what is measured without each head; HEED_MASK_BLEU: both */
    const char *tokenize; /* for BLEU: see heed_bleu */
    /* Called now and then with the part that is done, 0 to 1. It returns false to stop: then what
     * was measured so far is returned. May be NULL. */
    bool (*event)(void *user, const char *what, double done);
    void *user;
};

/* What every head of the model in dir does on these sentences, and what is lost without it. The
 * model is computed in f32 with the weights as they are stored. A head is masked by zeros in its
 * columns of the projection that follows. *out is freed by heed_heads_free. */
HEED_API enum heed_status heed_heads_of(struct heed_engine *e, const char *dir,
                                        const struct heed_heads_options *o, struct heed_heads **out,
                                        struct heed_error *err);
HEED_API void heed_heads_free(struct heed_heads *h);
/* What a role is called: "previous", "alignment" (HEED_ROLE_SAME in cross-attention), "rest". */
HEED_API const char *heed_role_name(enum heed_attention_use use, enum heed_role role);
/* SVG, terminal or JSON. *out is malloced and NUL-terminated. */
HEED_API enum heed_status heed_heads_picture(const struct heed_heads *h, enum heed_picture kind,
                                             char **out, struct heed_error *err);

/* ---- constituency trees (paper 6.3) ---- */

/* Trees in the bracketed form of the Penn Treebank. */
struct heed_trees;
/* Reads every tree of a text. name: what errors call it. *out is freed by heed_trees_free. */
HEED_API enum heed_status heed_trees_read(const char *text, const char *name,
                                          struct heed_trees **out, struct heed_error *err);
HEED_API void heed_trees_free(struct heed_trees *t);
HEED_API int heed_trees_count(const struct heed_trees *t);
/* Leaves out traces and function tags. */
HEED_API enum heed_status heed_trees_clean(struct heed_trees *t, struct heed_error *err);

enum heed_tree_form {
    HEED_TREE_BRACKETS, /* on one line */
    HEED_TREE_WORDS,    /* the words, with spaces between them */
    HEED_TREE_LINEAR    /* as a model writes it: brackets with labels, and tags in place of words */
};
/* Tree i, counted from 0. Words and linear form leave out traces and function tags. *out is
 * malloced and NUL-terminated. */
HEED_API enum heed_status heed_tree_text(const struct heed_trees *t, int i,
                                         enum heed_tree_form form, char **out,
                                         struct heed_error *err);
/* SVG or terminal. *out is malloced and NUL-terminated. */
HEED_API enum heed_status heed_tree_picture(const struct heed_trees *t, int i,
                                            enum heed_picture kind, char **out,
                                            struct heed_error *err);
/* A tree in brackets over exactly the given words, separated by whitespace, from a text that is
 * meant to be the linear form of one; "" where there are no words. Any text becomes a tree. *out is
 * malloced and NUL-terminated. */
HEED_API enum heed_status heed_tree_restore(const char *linear, const char *words, char **out,
                                            struct heed_error *err);

/* ---- scoring: equal to sacreBLEU's scores ---- */

/* The lines of PARSEVAL are bracketed trees; see docs/scores.md for the rules. */
enum heed_metric {
    HEED_METRIC_BLEU,
    HEED_METRIC_CHRF,
    HEED_METRIC_CHRFPP,
    HEED_METRIC_TER,
    HEED_METRIC_PARSEVAL
};
/* As users type it ("chrf++"), and as it is printed ("chrF++"); NULL where there is no such metric,
 * so that a loop from 0 on finds all. */
HEED_API const char *heed_metric_name(enum heed_metric m);
HEED_API const char *heed_metric_title(enum heed_metric m);

struct heed_scoring {
    enum heed_metric metric;
    const char *tokenize; /* of BLEU: 13a, zh, intl, char or none */
    bool lowercase;       /* compare in lower case; TER always does */
};

/* Percent, and how many constituents there are. */
struct heed_parseval {
    double precision, recall;
    double exact;              /* lines without a difference */
    double tags;               /* tags that are right */
    long matched, gold, found; /* constituents */
    long lines, errors;        /* errors: lines that are no tree over the words of the reference */
};

struct heed_score {
    double value;        /* 0 to 100; TER may exceed 100 */
    char signature[256]; /* how it was computed */
    /* BLEU only */
    double precision[4], brevity_penalty;
    long hyp_len, ref_len;
    /* TER only */
    long edits;
    double ref_words; /* the mean of the references */
    /* PARSEVAL only; the value is F1 */
    struct heed_parseval parseval;
};

/* The score of a corpus of n sentences, hyp[n], with one or more references, ref[refs][n]. */
HEED_API enum heed_status heed_score_corpus(const struct heed_scoring *how, const char *const *hyp,
                                            const char *const *const *ref, int refs, int n,
                                            struct heed_score *out, struct heed_error *err);
/* The score of each sentence: out[n]. */
HEED_API enum heed_status heed_score_sentences(const struct heed_scoring *how,
                                               const char *const *hyp,
                                               const char *const *const *ref, int refs, int n,
                                               struct heed_score *out, struct heed_error *err);

struct heed_comparison {
    struct heed_score score;
    double mean, interval; /* of the scores of the samples: 95% are in mean - interval to mean +
                            * interval, about */
    double p; /* how likely a difference from the first system as large as this one would be if both
               * were equally good; 1 for the first */
};
/* Scores of several systems, hyp[systems][n], and whether each is better or worse than the first by
 * more than chance: paired bootstrap resampling (Koehn, 2004), with the samples that sacreBLEU
 * draws for the same seed. out[systems]. */
HEED_API enum heed_status heed_score_systems(const struct heed_scoring *how,
                                             const char *const *const *hyp, int systems,
                                             const char *const *const *ref, int refs, int n,
                                             int samples, uint64_t seed,
                                             struct heed_comparison *out, struct heed_error *err);

/* BLEU and chrF of a corpus with one reference. */
HEED_API enum heed_status heed_bleu(const char *const *hyp, const char *const *ref, int n,
                                    const char *tokenize, struct heed_score *out,
                                    struct heed_error *err);
HEED_API enum heed_status heed_chrf(const char *const *hyp, const char *const *ref, int n,
                                    struct heed_score *out, struct heed_error *err);

/* ---- the paper's experiments ---- */

/* A study measures one of the paper's tables, or one of its claims, anew:
 *   table1    time, memory and path length of one layer: self-attention, recurrent, convolutional
 *   table2    BLEU and training operations of the base and the big model
 *   table3    variations of the base model, rows A to E
 *   scaling   the softmax of dot products with and without 1 / sqrt(d_k)
 *   length    loss and BLEU beyond the trained length, for each kind of position
 *   schedule  training with and without warm-up
 * Its rows are computed one by one. In its directory there are
 *   study.json       the options, which later calls must share
 *   rows/NAME.json   the numbers of each finished row, which is not computed again
 *   runs/NAME        a training that goes on where it stopped; the log of one that is finished
 *   report.md, *.svg made of these files alone
 * Several processes may work on one directory: each takes rows that no other is at. */
struct heed_study;

enum heed_row_state {
    HEED_ROW_WAITING,
    HEED_ROW_BEGUN,   /* its training was stopped and goes on */
    HEED_ROW_RUNNING, /* a process computes it */
    HEED_ROW_FINISHED
};

struct heed_row {
    const char *name;  /* such as "A1" */
    const char *about; /* what it is, in a few words */
    enum heed_row_state state;
};

struct heed_study_event {
    const char *row;    /* name of the row; NULL: the whole study */
    int finished, rows; /* of the rows that are to be computed: how many are finished, and all */
    const struct heed_event *training; /* an event of the row's training; NULL: none */
    const char *text;                  /* a sentence for a person; NULL: none */
};

struct heed_study_options {
    const char *name;        /* of the study */
    const char *out;         /* its directory */
    const char *command;     /* what the report calls its command; NULL: nothing */
    const char *const *rows; /* [rows_n] the rows to compute; rows_n 0: all */
    int rows_n;
    double minutes; /* after so many no row begins, and a training is saved and stops; 0: no end */
    uint64_t seed;
    /* Of each training, except what its row changes. `out`, `resume`, `event` and `seed` are not
     * read. Studies without training read nothing of it. vocab NULL: a vocabulary of vocab_size
     * pieces is made of the training text. */
    struct heed_train_options train;
    int vocab_size;
    struct heed_corpus test; /* what the models are scored on at the end; n == 0: train.valid */
    int longest, widest; /* table1: most positions, and numbers of a vector; train.precision is read
                          * as well */
    void (*event)(void *user, const struct heed_study_event *e); /* may be NULL */
    void *user;
};

HEED_API struct heed_study_options heed_study_defaults(void);

/* Strings and arrays of the options must live as long as the study. */
HEED_API struct heed_study *heed_study_open(struct heed_engine *e,
                                            const struct heed_study_options *o,
                                            struct heed_error *err);
/* Row i, from 0, as it is now; false where there is no such row. Its strings are valid as long as
 * the study. */
HEED_API bool heed_study_row(struct heed_study *s, int i, struct heed_row *out);
/* Computes the rows that no process has finished or is at, and writes the report. A row that cannot
 * be computed does not keep others from it; the error is that of the first. */
HEED_API enum heed_status heed_study_run(struct heed_study *s, struct heed_error *err);
/* Writes the report of the rows that are finished. */
HEED_API enum heed_status heed_study_report(struct heed_study *s, struct heed_error *err);
/* Asks heed_study_run to save and return, like heed_trainer_stop. */
HEED_API void heed_study_stop(struct heed_study *s);
HEED_API void heed_study_free(struct heed_study *s);

#ifdef __cplusplus
}
#endif
#endif
