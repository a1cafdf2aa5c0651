/*
 * link.c - see link.h.
 */
#include "train/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* ---- the decision ---- */

/* The first two ranks that have the same device. */
static bool share_device(const struct link_offer *offer, int ranks, int *first, int *second)
{
    for (*first = 0; *first < ranks; ++*first)
        for (*second = *first + 1; *second < ranks; ++*second)
            if (memcmp(&offer[*first].info.device, &offer[*second].info.device,
                       sizeof offer->info.device) == 0)
                return true;
    return false;
}

/* Whether a link can be opened, and if not, why: the reason of the first rank that cannot. */
static bool all_loaded(const struct link_offer *offer, const char (*host)[CLUSTER_HOST_MAX],
                       int ranks, char why[LINK_TEXT])
{
    for (int i = 0; i < ranks; i++) {
        if (offer[i].loaded) continue;
        if (i)
            snprintf(why, LINK_TEXT, "rank %d on host %s: %s", i, host[i], offer[i].why);
        else
            snprintf(why, LINK_TEXT, "%s", offer[i].why);
        return false;
    }
    return true;
}

/* Whether a link may be opened for this wish. A single rank needs one only if it is asked for. */
static bool wish_needs_link(const struct link_wish *wish, int ranks)
{
    bool asked = wish->link == HEED_LINK_NCCL || wish->sum == HEED_SUM_FAST;
    return wish->link != HEED_LINK_HOST && (ranks > 1 || asked);
}

enum heed_status link_decide(struct link_choice *out, const struct link_wish *wish,
                             const struct link_offer *offer, const char (*host)[CLUSTER_HOST_MAX],
                             int ranks, struct heed_error *err)
{
    char why[LINK_TEXT] = "";
    int first, second;
    bool open = wish_needs_link(wish, ranks) && all_loaded(offer, host, ranks, why);
    if (open && wish->link == HEED_LINK_AUTO && share_device(offer, ranks, &first, &second)) {
        snprintf(why, sizeof why, "ranks %d and %d share a GPU", first, second);
        open = false;
    }
    if (wish->link == HEED_LINK_NCCL && !open)
        return error_set(err, HEED_EUNSUPPORTED, "link is nccl, but %s", why);
    if (wish->sum == HEED_SUM_FAST && !open)
        return error_set(err, HEED_EUNSUPPORTED,
                         "sum is fast, which needs NCCL, but gradients would go through host "
                         "memory: %s",
                         wish->link == HEED_LINK_HOST ? "link is host" : why);
    *out = (struct link_choice){.open = open};
    if (ranks == 1) return HEED_OK;
    if (open)
        snprintf(out->text, sizeof out->text, "gradients go from GPU to GPU by %s%s",
                 offer[0].info.library,
                 wish->sum == HEED_SUM_FAST ? ", which chooses the order of additions" : "");
    else if (offer[0].host)
        snprintf(out->text, sizeof out->text, "gradients are exchanged by MPI");
    else
        snprintf(out->text, sizeof out->text, "gradients go through host memory%s%.*s",
                 *why ? ": " : "", (int)sizeof out->text - 64, why);
    return HEED_OK;
}

/* ---- opening ---- */

/* needed: a link may be opened; otherwise its library is not loaded. */
static struct link_offer offer_of(struct backend *be, bool needed)
{
    struct link_offer o = {.host = be->op->host};
    struct heed_error err = {0};
    if (!needed) return o;
    if (!be->op->link)
        snprintf(o.why, sizeof o.why, "the device '%s' has no NCCL, which is for GPUs",
                 be->op->name);
    else if (be->op->link->load(be, &o.info, &err))
        snprintf(o.why, sizeof o.why, "%.*s", LINK_WHY - 1, err.text);
    else
        o.loaded = true;
    return o;
}

/* The status and the sentence of the first rank where a part of the opening failed, on all ranks.
 * Unlike after cluster_agree, the job may go on: without a link. */
static enum heed_status agree(struct heed_cluster *c, enum heed_status status,
                              struct heed_error *err)
{
    int ranks = cluster_ranks(c);
    struct heed_error *all = calloc((size_t)ranks, sizeof *all);
    if (!all) return error_memory(err, (size_t)ranks * sizeof *all, "errors of ranks");
    err->status = status;
    enum heed_status s = cluster_all(c, all, err, sizeof *err, err);
    for (int i = 0; i < ranks && !s; i++) {
        s = all[i].status;
        if (s) *err = all[i];
    }
    free(all);
    return s;
}

/* Opens the link on all ranks, or on none of them. */
static enum heed_status open_link(struct heed_cluster *c, struct backend *be,
                                  struct heed_error *err)
{
    const struct link_ops *op = be->op->link;
    struct link_id id = {0};
    enum heed_status s = cluster_rank(c) == 0 ? op->make_id(be, &id, err) : HEED_OK;
    s = agree(c, s, err);
    if (!s) s = cluster_from_first(c, &id, sizeof id, err);
    if (s) return s;
    s = agree(c, op->open(be, &id, cluster_rank(c), cluster_ranks(c), err), err);
    if (s) op->close(be, true);
    return s;
}

/* A link that could not be opened is an error, or the reason for another way. */
static enum heed_status without_link(struct link_choice *out, const struct link_wish *wish,
                                     bool shares, const struct heed_error *why,
                                     struct heed_error *err)
{
    static const char HINT[] = " (ranks share a GPU, which NCCL accepts from version 2.30 on where "
                               "NCCL_MULTI_RANK_GPU_ENABLE=1 is in the environment)";
    if (wish->link == HEED_LINK_NCCL || wish->sum == HEED_SUM_FAST)
        return error_set(err, why->status, "%s%s", why->text, shares ? HINT : "");
    *out = (struct link_choice){0};
    snprintf(out->text, sizeof out->text, "gradients go through host memory: %.*s", LINK_TEXT - 64,
             why->text);
    return HEED_OK;
}

enum heed_status link_choose(struct link_choice *out, struct heed_cluster *c, struct backend *be,
                             const struct link_wish *wish, struct heed_error *err)
{
    int ranks = cluster_ranks(c), first, second;
    struct link_offer mine = offer_of(be, wish_needs_link(wish, ranks));
    struct link_offer *all = calloc((size_t)ranks, sizeof *all);
    if (!all) return error_memory(err, (size_t)ranks * sizeof *all, "the links of ranks");
    struct link_choice choice = {0};
    struct heed_error why = {0};
    enum heed_status s = cluster_all(c, all, &mine, sizeof mine, err);
    if (!s)
        s = link_decide(&choice, wish, all, c ? (const char(*)[CLUSTER_HOST_MAX])c->host : NULL,
                        ranks, err);
    if (!s && choice.open && open_link(c, be, &why))
        s = without_link(&choice, wish, share_device(all, ranks, &first, &second), &why, err);
    free(all);
    if (!s) *out = choice;
    return s;
}
