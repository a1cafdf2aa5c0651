/*
 * exchange.h - the sum of the gradients of all shards of a step, and the parameters that follow
 * from it, among the ranks of a cluster.
 *
 * Sums have the form of a binary tree over the shards, ((0+1)+(2+3))+((4+5)+(6+7)), whatever the
 * number of ranks: a rank adds up the subtree of its own consecutive shards, and the owner of each
 * slice (slices.h) adds up the subtrees of all ranks. While the last backward of a rank goes on,
 * slices that are final are sent to their owners already: from device to device over a link, or by
 * messages where the memory of the device is that of the host. Otherwise, and after the last
 * backward, they go through host memory.
 *
 * Call order in a step: for each shard of this rank exchange_begin, its backwards (the last of the
 * last with exchange_watch), exchange_end; then exchange_sum; and once the own slices of the
 * parameters are updated, exchange_gather.
 */
#ifndef HEED_TRAIN_EXCHANGE_H
#define HEED_TRAIN_EXCHANGE_H
#include "cluster/cluster.h"
#include "model/run.h"
#include "train/slices.h"

struct exchange;

struct exchange_options {
    bool link; /* over the link of the run's backend, which is open; false: by messages */
    bool fast; /* with a link: the order of additions among ranks is up to the link */
};

/* slices, run and its parameters must outlive the exchange. */
enum heed_status exchange_open(struct exchange **out, struct heed_cluster *c,
                               const struct slices *slices, struct run *r,
                               const struct exchange_options *o, struct heed_error *err);
void exchange_free(struct exchange *x);

/* Shards of this rank are counted from 0. */
enum heed_status exchange_begin(struct exchange *x, int shard, struct heed_error *err);
const struct gradient_watch *exchange_watch(struct exchange *x);
enum heed_status exchange_end(struct exchange *x, int shard, struct heed_error *err);
/* Completes the sums: sum[spans] are those of the own slices, valid until exchange_begin. */
enum heed_status exchange_sum(struct exchange *x, const struct mat **sum, struct heed_error *err);
/* Sends the own slices of the parameters to all ranks and receives theirs. */
enum heed_status exchange_gather(struct exchange *x, struct heed_error *err);
/* Rank 0 collects the slices of an array like a moment: out [n] in host memory, on rank 0. */
enum heed_status exchange_collect(struct exchange *x, struct mat own, void *out,
                                  struct heed_error *err);

#endif
