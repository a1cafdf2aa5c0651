/*
 * handout.h - lines that the ranks of a cluster translate: rank 0 reads them, hands them out in
 * blocks, and shows the answers in order.
 */
#ifndef HEED_CLI_HANDOUT_H
#define HEED_CLI_HANDOUT_H
#include "cli/lines.h"
#include "cli/translator.h"

struct handout {
    struct translator *t; /* open on rank 0; the others open theirs when they get a block */
    struct heed_cluster *cluster;
    /* Rank 0: adds at most max lines, and as many translations to be scored, if there are such, to
     * empty lists; none: that was all. Exit codes, after a sentence. */
    int (*read)(void *user, struct lines *text, struct lines *given, int max);
    int (*show)(void *user, const char *const *text, const char *const *given,
                const struct heed_answer *answer, int n);
    void *user;
    /* for the time of the work */
    struct handout_block *first, *last; /* blocks without an answer, on rank 0 */
    int code;
};

/* Called on every rank. Returns an exit code, after a sentence where it is not CLI_DONE. */
int handout_run(struct handout *h);

#endif
