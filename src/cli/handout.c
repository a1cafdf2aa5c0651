/*
 * handout.c - see handout.h.
 */
#include "cli/handout.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/parcel.h"

/* Lines of a block: few enough that a text of some thousand lines keeps several ranks busy, and
 * enough for many to share every decoding step. */
enum { BLOCK = TRANSLATOR_BLOCK / 4 };

/* A block whose answer has not been shown yet. */
struct handout_block {
    struct lines text, given;
    char *requests; /* as they were sent */
    size_t bytes;
    struct handout_block *next;
};

static void block_free(struct handout_block *b)
{
    lines_release(&b->text);
    lines_release(&b->given);
    free(b->requests);
    free(b);
}

/* Remembers the exit code, and ends the work unless it is CLI_DONE. */
static enum heed_status note(struct handout *h, int code)
{
    if (code != CLI_DONE) h->code = code;
    return code == CLI_DONE ? HEED_OK : HEED_EARG;
}

static int block_read(struct handout *h, struct handout_block *b)
{
    struct translator *t = h->t;
    int code = h->read(h->user, &b->text, &b->given, BLOCK);
    if (code != CLI_DONE || b->text.n == 0) return code;
    code = translator_check(t, (const char *const *)b->text.v, b->text.n);
    if (code != CLI_DONE) return code;
    for (int i = 0; i < b->given.n; i++) t->request[i].given = b->given.v[i];
    if (!requests_pack(t->request, b->text.n, TRANSLATOR_UNTAGGED, &b->requests, &b->bytes)) {
        return cli_failure("out of memory: %d lines", b->text.n);
    }
    return CLI_DONE;
}

static enum heed_status next_block(void *user, char **block, size_t *bytes)
{
    struct handout *h = user;
    struct handout_block *b = calloc(1, sizeof *b);
    int code = b ? block_read(h, b) : cli_failure("out of memory: %d lines", BLOCK);
    if (code != CLI_DONE || b->text.n == 0) {
        if (b) block_free(b);
        return note(h, code);
    }
    *(h->first ? &h->last->next : &h->first) = b;
    h->last = b;
    *block = malloc(b->bytes);
    if (!*block) return note(h, cli_failure("out of memory: %d lines", b->text.n));
    memcpy(*block, b->requests, b->bytes);
    *bytes = b->bytes;
    return HEED_OK;
}

static int answer_block(struct handout *h, const char *block, char **answer, size_t *bytes)
{
    struct translator *t = h->t;
    const struct heed_answer *out = NULL;
    int code = t->session ? CLI_DONE : translator_open(t);
    if (code != CLI_DONE) return code;
    for (int i = 0; i < TRANSLATOR_BLOCK; i++) t->request[i] = translator_request(t, "");
    int n = requests_unpack(t->request, TRANSLATOR_BLOCK, TRANSLATOR_UNTAGGED, block);
    code = translator_ask(t, n, &out);
    if (code == CLI_DONE && !answers_pack(out, n, answer, bytes)) {
        code = cli_failure("out of memory: answers to %d lines", n);
    }
    return code;
}

static enum heed_status work(void *user, const char *block, size_t bytes, char **answer,
                             size_t *answer_bytes)
{
    (void)bytes;
    struct handout *h = user;
    int rank = heed_cluster_rank(h->cluster);
    int code = answer_block(h, block, answer, answer_bytes);
    if (code != CLI_DONE && rank) {
        cli_failure("rank %d on host %s cannot translate, for the reason above", rank,
                    heed_cluster_host(h->cluster, rank));
    }
    return note(h, code);
}

static enum heed_status take(void *user, const char *bytes, size_t n_bytes)
{
    (void)n_bytes;
    struct handout *h = user;
    struct handout_block *b = h->first;
    int n = 0;
    struct heed_answer *answer = answers_unpack(bytes, &n);
    if (!answer) return note(h, cli_failure("out of memory: answers to %d lines", b->text.n));
    requests_unpack(h->t->request, n, TRANSLATOR_UNTAGGED, b->requests);
    const char *const *given = b->given.n ? (const char *const *)b->given.v : NULL;
    int code = h->show(h->user, (const char *const *)b->text.v, given,
                       translator_accept(h->t, answer, n), n);
    h->first = b->next;
    block_free(b);
    free(answer);
    return note(h, code);
}

int handout_run(struct handout *h)
{
    struct heed_error err = {0};
    const struct heed_handout work_of = {next_block, work, take, h};
    enum heed_status s = heed_cluster_hand_out(h->cluster, &work_of, &err);
    while (h->first) {
        struct handout_block *b = h->first;
        h->first = b->next;
        block_free(b);
    }
    if (s && h->code == CLI_DONE) return cli_failure("%s", err.text);
    return h->code;
}
