/*
 * mend.c - a second search for the pieces whose best translation loops or has no end.
 */
#include "decode/faults.h"
#include "decode/job.h"

/* What is wrong with the best translation of a piece. */
static unsigned flags_of(const struct pieces *p, const struct sentence *x,
                         const struct translation *t)
{
    struct heed_ids src = {x->src.v + p->tag.n, x->src.n - p->tag.n, 0};
    return faults_of(&src, t);
}

/* Looks for faults in every piece. Those that can be mended are searched for once more, where no
 * n-gram may come twice, unless the translation is given or the options forbid repeats already. */
enum heed_status mend_begin(struct job *j, struct heed_error *err)
{
    enum { NO_REPEAT = 3 };
    struct pieces *p = &j->p;
    bool once = p->request->given || p->o.no_repeat_ngram;
    enum heed_status status = job_more(j, p->n, p->n * p->nbest, err);
    int n = 0;
    for (int i = 0; i < p->n && !status; i++) {
        const struct sentence *x = &p->sentence[i];
        if (!x->src.n || x->out->broken) continue;
        p->flags[i] = flags_of(p, x, x->out);
        if (!(p->flags[i] & FAULTS_TO_MEND) || once) continue;
        j->piece[n] = i;
        j->more[n] = *x;
        j->more[n].beam.no_repeat = NO_REPEAT;
        j->more[n].out = &j->out[n * p->nbest];
        n++;
    }
    j->more_n = n;
    return status;
}

/* Keeps the translations of the second search where they mend what was wrong. */
void mend_end(struct job *j)
{
    struct pieces *p = &j->p;
    for (int n = 0; n < j->more_n; n++) {
        int i = j->piece[n];
        struct translation *first = p->sentence[i].out, *again = j->more[n].out;
        unsigned flags = flags_of(p, &p->sentence[i], again);
        bool mended = !(flags & FAULTS_TO_MEND);
        for (int k = 0; k < p->nbest && mended; k++) {
            struct translation swap = first[k];
            first[k] = again[k];
            again[k] = swap;
        }
        p->flags[i] = (mended ? flags : p->flags[i]) | HEED_FLAG_RETRIED;
    }
}
