/*
 * job.h - the way of one request through a session, in stages. The pieces of its text are searched
 * for; a second time where what was found went wrong (mend.c); then they are joined, and where
 * words are linked or something has to be put back in its place, the translations are given to the
 * search as a whole, which tells their attention (link.c).
 *
 * A job never has more sentences in the search than can be open at once, so that the sentences of a
 * long text do not keep those of other requests waiting in the queue.
 *
 * Call order: job_open; job_found for each of its sentences that the search has finished; job_next
 * whenever there are no more of a stage, that is when left is 0, until done; job_free.
 */
#ifndef HEED_DECODE_JOB_H
#define HEED_DECODE_JOB_H
#include "decode/session.h"

enum stage { STAGE_SEARCH, STAGE_MEND, STAGE_LINK };

struct job {
    struct heed_session *session;
    const void *user;          /* of heed_submit */
    bool in_call;              /* it belongs to a call of heed_translate */
    bool done;                 /* `answer` is complete */
    struct job *before, *next; /* in the list that it is in */

    struct pieces p;
    enum stage stage;
    struct sentence *asked;  /* [asked_n] the sentences of the stage, ... */
    int asked_n, added;      /* ... of which the first `added` were given to the search */
    int left;                /* sentences of the stage that the search has not finished */
    struct sentence *more;   /* [more_n] the sentences of stages after the first */
    struct translation *out; /* [outs] their translations */
    int more_n, outs;
    int *piece;                 /* [more_n] mend: which piece each is */
    int linked;                 /* link: how many of the results, from the best on */
    int32_t end;                /* the end mark, for a translation that is empty */
    struct heed_result *result; /* [p.nbest] */
    struct heed_answer answer;
};

/* The request must live as long as the job. */
enum heed_status job_open(struct job **out, struct heed_session *s,
                          const struct heed_request *request, struct heed_error *err);
/* The search has finished a sentence of the job. */
void job_found(struct job *j);
/* Ends a stage and begins the next; done is set where there is none. */
enum heed_status job_next(struct job *j, struct heed_error *err);
/* The text that the search has found so far; see heed_partial. *out is malloced. */
enum heed_status job_so_far(struct job *j, char **out, struct heed_error *err);
/* Takes sentences that are not finished out of the search. */
void job_free(struct job *j);

/* For mend.c and link.c: memory for n sentences with `outs` translations, in place of those of an
 * earlier stage. */
enum heed_status job_more(struct job *j, int n, int outs, struct heed_error *err);

/* Each `begin` fills `more` with the sentences that are to be searched for; none where more_n is 0.
 * Each `end` uses what was found for them. */
enum heed_status mend_begin(struct job *j, struct heed_error *err);
void mend_end(struct job *j);
enum heed_status links_begin(struct job *j, struct heed_error *err);
/* Puts what was not read of the text into the results, too. */
enum heed_status links_end(struct job *j, struct heed_error *err);

#endif
