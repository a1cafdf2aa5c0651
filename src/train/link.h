/*
 * link.h - which way ranks exchange gradients and parameters: from device to device over a link
 * (struct link_ops), or by messages between the hosts (cluster.h).
 *
 * The way is chosen once, when a run is opened, and is the same on all ranks: every rank tells what
 * it can do, and each comes to the same decision from what all have told (link_decide).
 */
#ifndef HEED_TRAIN_LINK_H
#define HEED_TRAIN_LINK_H
#include "cluster/cluster.h"
#include "ops/ops.h"

enum { LINK_WHY = 320, LINK_TEXT = 512 };

/* What a rank can do. */
struct link_offer {
    struct link_info info;
    bool loaded;        /* the library of links is loaded, and info is set */
    bool host;          /* the memory of its device is that of the host */
    char why[LINK_WHY]; /* why not */
};

/* What the user asked for. */
struct link_wish {
    enum heed_link link;
    enum heed_sum sum;
};

struct link_choice {
    bool open;            /* a link is to be used, and after link_choose it is open */
    char text[LINK_TEXT]; /* how gradients are exchanged, for a person; "": with one rank nothing */
};

/* The way for these ranks; [ranks] offers and names of hosts, of which a single rank has none. An
 * error is the same on all ranks, too. */
enum heed_status link_decide(struct link_choice *out, const struct link_wish *wish,
                             const struct link_offer *offer, const char (*host)[CLUSTER_HOST_MAX],
                             int ranks, struct heed_error *err);

/* Decides, and opens the link of the backend. Called on every rank of the cluster. */
enum heed_status link_choose(struct link_choice *out, struct heed_cluster *c, struct backend *be,
                             const struct link_wish *wish, struct heed_error *err);

#endif
