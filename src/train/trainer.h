/*
 * trainer.h - the state of a training run, shared by the files that open it (trainer_open.c),
 * compute its steps (trainer_step.c) and lead it from step to step (trainer.c).
 *
 * With a cluster every rank has a trainer, and all of them are in the same state but for the data
 * and the slice of Adam's moments. Rank 0 alone writes files.
 */
#ifndef HEED_TRAIN_TRAINER_H
#define HEED_TRAIN_TRAINER_H
#include <stdatomic.h>

#include "corpus/batch.h"
#include "ops/engine.h"
#include "train/checkpoint.h"
#include "train/exchange.h"
#include "train/link.h"
#include "train/log.h"
#include "train/validate.h"

/* What a batch or a step takes. */
struct work {
    int64_t source_tokens, target_tokens;
    double flops;
};

/* A shard of this rank: its batches, and what the step made of them. */
struct shard {
    struct batches *batches;
    struct loss loss;
    struct work work;
};

struct heed_trainer {
    struct heed_train_options o; /* with the number of shards that the run has */
    struct heed_cluster *cluster;
    int lock;           /* descriptor that locks the output directory; -1: none */
    struct backend *be; /* not shared with others */
    int threads;        /* that tokenize; 0: all cores */
    struct heed_tokenizer *tokenizer;
    struct parameters *p;
    struct run *run;
    struct slices slices;
    struct link_choice link;   /* which way ranks exchange gradients */
    struct exchange *exchange; /* NULL: the run has one shard */
    struct optimizer *opt;
    struct expert_load *load;   /* [layers * experts] of the step; NULL: there are no experts */
    struct heed_expert *expert; /* the same for events */
    struct batch_shared *text;  /* what the shards of this rank read */
    struct heed_read *read;     /* [train.n] for events */
    struct shard *shard;        /* [shards] of this rank */
    int shards;
    double *report, *reports;    /* what a rank tells the others about a step, and that of all */
    struct validator *validator; /* NULL: none */
    struct log *log;             /* NULL: another rank writes it */
    struct schedule schedule;
    struct progress at; /* where the run is; the cursors are those of this rank's shards */
    struct work ahead;  /* the batch that is on the device already; no tokens: none is */
    struct batch_cursor after_ahead; /* cursor of the batch after that one */
    int64_t saved;                   /* step of the newest checkpoint; 0: none */
    double start, rate;              /* seconds; target tokens per second, smoothed */
    char trouble[768];               /* why the newest checkpoint could not be used; "": it was */
    int64_t first_step;              /* step at which this process began; for the time left */
    bool stopping;                   /* all ranks know that one of them was asked to stop */
    atomic_bool stop;                /* set by heed_trainer_stop, in any thread or signal handler */
};
_Static_assert(ATOMIC_BOOL_LOCK_FREE == 2, "a signal handler may set it");

struct checkpoint checkpoint_of(const struct heed_trainer *t);
/* Experts of all layers together. */
int trainer_experts(const struct heed_trainer *t);
/* Numbers in a rank's report on a step. */
size_t trainer_report_size(const struct heed_trainer *t);

/* Whether this rank writes the files of the run. */
static inline bool trainer_writes(const struct heed_trainer *t)
{
    return cluster_rank(t->cluster) == 0;
}

/* The cursor of shard i of this rank. */
static inline struct batch_cursor *trainer_cursor(struct heed_trainer *t, int i)
{
    return &t->at.cursor[cluster_rank(t->cluster) * t->shards + i];
}

/* An event that happens now, without its figures. */
struct heed_event trainer_event(const struct heed_trainer *t, enum heed_event_kind kind);
/* Passes an event on to the caller and to the log. */
enum heed_status trainer_tell(struct heed_trainer *t, const struct heed_event *e,
                              struct heed_error *err);
enum heed_status trainer_tell_text(struct heed_trainer *t, enum heed_event_kind kind,
                                   const char *text, struct heed_error *err);

/* After a checkpoint was loaded: ranks that have loaded their own slices alone get the others. */
enum heed_status trainer_share_weights(struct heed_trainer *t, struct heed_error *err);
/* Computes the next step, and tells of it. */
enum heed_status trainer_step(struct heed_trainer *t, struct heed_error *err);

/* Whether all ranks see the output directory of rank 0 and were given the same options and text;
 * the same status on all ranks. */
enum heed_status trainer_same_run(struct heed_trainer *t, const struct recipe *given,
                                  struct heed_error *err);

#endif
