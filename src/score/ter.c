/*
 * ter.c - translation edit rate (Snover et al., 2006), equal to sacreBLEU's, which follows Tercom.
 *
 * The rate is the number of edits that turn the hypothesis into the reference, per word of the
 * reference. Edits are insertions, deletions and substitutions of words, and shifts of a phrase to
 * another place. The best shifts are not found exactly: as long as a shift lowers the edit
 * distance, the one that lowers it most is done. Which shifts are tried, which of two equally good
 * ones is taken and the width of the band of the edit distance decide about the last digits of the
 * score, so all of them are as in sacreBLEU. Case is ignored. Of several references the one with
 * the fewest edits counts; the length is the mean of all.
 *
 * Call order: ter_count; per reference: ter_edits, which alternates distance_trace and best_shift.
 */
#include "base/array.h"
#include "base/error.h"
#include "base/minmax.h"
#include "score/metric.h"
#include "score/ngram.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHIFT_SIZE_MAX = 10,     /* words that are shifted together */
    SHIFT_DISTANCE_MAX = 50, /* between the places of a phrase in hypothesis and reference */
    SHIFTS_TRIED_MAX = 1000, /* in one sentence */
    BAND = 25,               /* half the width of the band of the edit distance, at least */
    INFINITE = 1 << 29,      /* edit distance of cells outside the band */
};
enum { COUNT_EDITS, COUNT_REF_WORDS, COUNTS };
enum op { OP_MATCH, OP_SUBSTITUTE, OP_DELETE, OP_INSERT };

/* The edit distance of the first i words of the hypothesis and the first j of the reference is
 * computed for j in a band around the diagonal, row by row. `cost` and `op` keep the rows of the
 * hypothesis as it is. A hypothesis with a phrase shifted has the same rows up to the first word
 * that differs. */
struct ter {
    struct ngram words;
    int32_t *ints; /* memory of the arrays below */
    size_t ints_cap;
    int32_t *hyp, *shifted, *best; /* [hyps] words; shifted: as one shift has them */
    int32_t *above, *row;          /* [refs + 1] rows i - 1 and i */
    int32_t *align;                /* [refs] the word of hyp before or at each word of ref; -1 */
    int32_t *hyp_errors;           /* [hyps + 1] words of hyp before this one that do not match */
    int32_t *ref_errors;           /* [refs + 1] the same of ref */
    int32_t *cost;                 /* [hyps + 1][2 * band] */
    size_t cost_cap;
    uint8_t *op; /* [hyps + 1][2 * band] enum op */
    size_t op_cap;
    const int32_t *ref;
    int hyps, refs; /* words */
    int band;
    double slope;  /* words of ref for each word of hyp */
    int low, high; /* cells with j - i outside of this range are of no interest */
    int tried;     /* shifts */
};

static void ter_room_release(void *room)
{
    struct ter *t = room;
    ngram_room_release(&t->words);
    free(t->ints);
    free(t->cost);
    free(t->op);
}

static enum heed_status ter_reserve(struct ter *t, struct heed_error *err)
{
    static const char what[] = "the words of a line";
    size_t hyps = (size_t)t->hyps, refs = (size_t)t->refs, cells = (hyps + 1) * 2 * (size_t)t->band;
    enum heed_status status =
        array_reserve(&t->ints, &t->ints_cap, 4 * hyps + 4 * refs + 4, sizeof *t->ints, what, err);
    if (!status) status = array_reserve(&t->cost, &t->cost_cap, cells, sizeof *t->cost, what, err);
    if (!status) status = array_reserve(&t->op, &t->op_cap, cells, sizeof *t->op, what, err);
    if (status) return status;
    t->hyp = t->ints;
    t->shifted = t->hyp + hyps;
    t->best = t->shifted + hyps;
    t->above = t->best + hyps;
    t->row = t->above + refs + 1;
    t->align = t->row + refs + 1;
    t->hyp_errors = t->align + refs;
    t->ref_errors = t->hyp_errors + hyps + 1;
    return HEED_OK;
}

/* ---- edit distance ---- */

/* Row i has the cells first to end - 1. */
static int band_first(const struct ter *t, int i)
{
    return int_max(0, (int)floor(i * t->slope) - t->band);
}

static int band_end(const struct ter *t, int i)
{
    if (i == t->hyps) return t->refs + 1;
    return int_min(t->refs + 1, (int)floor(i * t->slope) + t->band);
}

/* Those of interest. */
static int row_first(const struct ter *t, int i)
{
    return int_max(band_first(t, i), i + t->low);
}

static int row_end(const struct ter *t, int i)
{
    return int_min(band_end(t, i), i + t->high + 1);
}

/* An edit script of at most `limit` edits inserts and deletes as many words as j - i changes on the
 * way from 0 to refs - hyps, so it only passes cells with j - i in this range. Returns false if
 * even the shortest is longer. */
static bool cells_limit(struct ter *t, int limit)
{
    int spare = limit - abs(t->refs - t->hyps);
    if (spare < 0) return false;
    t->low = int_min(0, t->refs - t->hyps) - spare / 2;
    t->high = int_max(0, t->refs - t->hyps) + spare / 2;
    return true;
}

static void cells_no_limit(struct ter *t)
{
    t->low = -t->hyps;
    t->high = t->refs;
}

/* Writes what the next row finds beside the cells of row i: it reads one more on the left, and up
 * to its own end on the right. */
static void row_close(struct ter *t, int32_t *row, int i, int first, int end)
{
    int next_end = i < t->hyps ? row_end(t, i + 1) : end;
    if (first > 0) row[first - 1] = INFINITE;
    for (int j = end; j < next_end; j++) row[j] = INFINITE;
}

/* Computes row i, whose word of the hypothesis is `word`, from the row above. op: where to write
 * the operations, or NULL. A substitution is preferred to a deletion, and that to an insertion.
 * Returns the lowest cost. */
static int row_compute(struct ter *t, int i, int32_t word, uint8_t *op)
{
    const int first = row_first(t, i), end = row_end(t, i);
    const int32_t *above = t->above, *ref = t->ref;
    int32_t *row = t->row;
    int32_t left = INFINITE, lowest = INFINITE;
    for (int j = first; j < end; j++) {
        int32_t cost = above[j] + 1;
        enum op o = OP_DELETE;
        if (j > 0) {
            bool same = word == ref[j - 1];
            int32_t replaced = above[j - 1] + !same;
            if (replaced <= cost) {
                cost = replaced;
                o = same ? OP_MATCH : OP_SUBSTITUTE;
            }
        }
        if (left + 1 < cost) {
            cost = left + 1;
            o = OP_INSERT;
        }
        row[j] = left = cost;
        lowest = int_min(lowest, cost);
        if (op) op[j - first] = (uint8_t)o;
    }
    row_close(t, row, i, first, end);
    t->row = t->above;
    t->above = row;
    return lowest;
}

/* The first row: j words of the reference are inserted. */
static void row_start(struct ter *t)
{
    for (int j = 0; j <= t->refs; j++) t->above[j] = j;
}

/* Takes row i of the hypothesis as it is for the row above. */
static void row_load(struct ter *t, int i)
{
    if (i == 0) {
        row_start(t);
        return;
    }
    int first = row_first(t, i), end = row_end(t, i);
    const int32_t *kept = t->cost + (size_t)i * 2 * (size_t)t->band - band_first(t, i);
    for (int j = first; j < end; j++) t->above[j] = kept[j];
    row_close(t, t->above, i, first, end);
}

/* The edit distance of hyp; keeps its rows. */
static int distance_keep(struct ter *t)
{
    const size_t width = 2 * (size_t)t->band;
    cells_no_limit(t);
    row_start(t);
    for (int i = 1; i <= t->hyps; i++) {
        int first = band_first(t, i), end = band_end(t, i);
        row_compute(t, i, t->hyp[i - 1], t->op + (size_t)i * width);
        memcpy(t->cost + (size_t)i * width, t->above + first,
               (size_t)(end - first) * sizeof *t->cost);
    }
    return t->above[t->refs];
}

/* The edit distance of `shifted`, whose first `same` words are those of hyp; any number above
 * `limit` if it is larger than that. */
static int distance_shifted(struct ter *t, int same, int limit)
{
    if (!cells_limit(t, limit)) return INFINITE;
    row_load(t, same);
    for (int i = same + 1; i <= t->hyps; i++) {
        if (row_compute(t, i, t->shifted[i - 1], NULL) > limit) return INFINITE;
    }
    return t->above[t->refs];
}

static enum op op_at(const struct ter *t, int i, int j)
{
    if (i == 0) return OP_INSERT;
    return (enum op)t->op[(size_t)i * 2 * (size_t)t->band + (size_t)(j - band_first(t, i))];
}

/* Follows the operations of hyp's edit distance from the end to the start, and fills align,
 * hyp_errors and ref_errors. */
static void distance_trace(struct ter *t)
{
    int i = t->hyps, j = t->refs;
    while (i > 0 || j > 0) {
        enum op o = op_at(t, i, j);
        if (o != OP_DELETE) {
            t->align[j - 1] = i - 1;
            t->ref_errors[j] = o != OP_MATCH;
            j--;
        }
        if (o != OP_INSERT) {
            t->hyp_errors[i] = o != OP_MATCH;
            i--;
        }
    }
    t->hyp_errors[0] = t->ref_errors[0] = 0;
    for (i = 1; i <= t->hyps; i++) t->hyp_errors[i] += t->hyp_errors[i - 1];
    for (j = 1; j <= t->refs; j++) t->ref_errors[j] += t->ref_errors[j - 1];
}

/* ---- shifts ---- */

struct shift {
    int gain; /* how much lower the edit distance is */
    int length, start, target;
};

static bool shift_is_better(struct shift a, struct shift b)
{
    if (a.gain != b.gain) return a.gain > b.gain;
    if (a.length != b.length) return a.length > b.length;
    if (a.start != b.start) return a.start < b.start;
    return a.target < b.target;
}

/* Writes hyp with the phrase moved to `shifted`: in front of the word `target`, or, where that is
 * inside the phrase or right behind it, by as many words to the right as it is inside. */
static void shift_write(struct ter *t, struct shift s)
{
    int32_t *out = t->shifted;
    const int32_t *hyp = t->hyp;
    int end = s.start + s.length;
    int to =
        s.target < s.start || s.target > end ? s.target : int_min(t->hyps, s.target + s.length);
    size_t word = sizeof *hyp, length = (size_t)s.length;
    memcpy(out, hyp, (size_t)t->hyps * word);
    if (to < s.start) {
        memcpy(out + to, hyp + s.start, length * word);
        memcpy(out + to + length, hyp + to, (size_t)(s.start - to) * word);
    } else {
        memcpy(out + s.start, hyp + end, (size_t)(to - end) * word);
        memcpy(out + s.start + (to - end), hyp + s.start, length * word);
    }
}

/* Tries to move a phrase of hyp, which the reference has from word ref_start on, to each place that
 * is aligned with the phrase there. */
static void shift_try(struct ter *t, struct shift *best, int distance, struct shift s,
                      int ref_start)
{
    for (int offset = -1, before = -1; offset < s.length; offset++, before = s.target) {
        int at = ref_start + offset;
        s.target = at < 0 ? 0 : t->align[at] + 1;
        if (s.target == before) continue;
        t->tried++;
        shift_write(t, s);
        /* A shift is of use if it gains one edit, and as many as the best so far. */
        int limit = distance - int_max(1, best->gain);
        s.gain = distance - distance_shifted(t, int_min(s.start, s.target), limit);
        if (!shift_is_better(s, *best)) continue;
        *best = s;
        memcpy(t->best, t->shifted, (size_t)t->hyps * sizeof *t->best);
    }
}

/* Whether both sides have errors in the phrase, and the phrase is not aligned with itself. */
static bool shift_may_help(const struct ter *t, struct shift s, int ref_start)
{
    int to = t->align[ref_start];
    return t->hyp_errors[s.start + s.length] > t->hyp_errors[s.start] &&
           t->ref_errors[ref_start + s.length] > t->ref_errors[ref_start] &&
           (to < s.start || to >= s.start + s.length);
}

/* The best shift of all phrases that both sides have; gain 0: none lowers the edit distance. */
static struct shift best_shift(struct ter *t, int distance)
{
    struct shift best = {0};
    for (int start = 0; start < t->hyps; start++) {
        int ref_end = int_min(t->refs, start + SHIFT_DISTANCE_MAX + 1);
        for (int r = int_max(0, start - SHIFT_DISTANCE_MAX); r < ref_end; r++) {
            int most = int_min(SHIFT_SIZE_MAX, int_min(t->hyps - start, t->refs - r));
            for (int n = 1; n <= most && t->hyp[start + n - 1] == t->ref[r + n - 1]; n++) {
                struct shift s = {.length = n, .start = start};
                if (!shift_may_help(t, s, r)) continue;
                shift_try(t, &best, distance, s, r);
                if (t->tried >= SHIFTS_TRIED_MAX) return best;
            }
        }
    }
    return best;
}

/* The number of edits that turn the hypothesis into a reference. */
static enum heed_status ter_edits(struct ter *t, const struct metric_text *ref, int *edits,
                                  struct heed_error *err)
{
    t->hyps = (int)t->words.hyp.n;
    t->refs = (int)ref->n;
    t->ref = ref->c;
    *edits = t->hyps;
    if (t->refs == 0) return HEED_OK;
    t->slope = t->hyps ? (double)t->refs / t->hyps : 1;
    t->band = BAND < t->slope / 2 ? (int)ceil(t->slope / 2 + BAND) : BAND;
    t->tried = 0;
    enum heed_status status = ter_reserve(t, err);
    if (status) return status;

    memcpy(t->hyp, t->words.hyp.c, (size_t)t->hyps * sizeof *t->hyp);
    int distance = distance_keep(t), shifts = 0;
    for (;;) {
        distance_trace(t);
        struct shift s = best_shift(t, distance);
        if (t->tried >= SHIFTS_TRIED_MAX || s.gain <= 0) break;
        memcpy(t->hyp, t->best, (size_t)t->hyps * sizeof *t->hyp);
        distance = distance_keep(t);
        shifts++;
    }
    *edits = shifts + distance;
    return HEED_OK;
}

/* ---- the metric ---- */

static enum heed_status ter_count(const struct scorer *s, double *counts, const char *hyp,
                                  const char *const *ref, int refs, struct heed_error *err)
{
    struct ter *t = s->room;
    struct ngram *g = &t->words;
    enum heed_status status = ngram_references(g, refs, err);
    if (!status) status = metric_decode(&g->hyp, hyp, s->lower, err);
    if (!status && g->hyp.n > INT32_MAX / 4) {
        status =
            error_set(err, HEED_EARG, "a hypothesis has %zu characters; at most %d can be scored",
                      g->hyp.n, INT32_MAX / 4);
    }
    for (int r = 0; r < refs && !status; r++) {
        status = metric_decode(&g->ref[r], ref[r], s->lower, err);
    }
    if (!status) status = ngram_words(g, err);
    int fewest = INT32_MAX;
    for (int r = 0; r < refs && !status; r++) {
        int edits = 0;
        status = ter_edits(t, &g->ref[r], &edits, err);
        fewest = int_min(fewest, edits);
        counts[COUNT_REF_WORDS] += (double)g->ref[r].n;
    }
    counts[COUNT_REF_WORDS] /= refs;
    counts[COUNT_EDITS] = fewest;
    return status;
}

static void ter_score(struct heed_score *s, const double *counts, bool sentence)
{
    (void)sentence;
    double edits = counts[COUNT_EDITS], words = counts[COUNT_REF_WORDS];
    s->edits = (long)edits;
    s->ref_words = words;
    /* Without a word in the references, any edit is an error of 100%. */
    s->value = words > 0 ? 100 * edits / words : edits > 0 ? 100 : 0;
}

static void ter_sign(char out[METRIC_SIGNATURE_MAX], const struct scorer *s, bool sentence)
{
    (void)sentence;
    (void)s;
    snprintf(out, METRIC_SIGNATURE_MAX, "case:lc|tok:tercom|norm:no|punct:yes|asian:no");
}

const struct metric metric_ter = {
    .name = "ter",
    .title = "TER",
    .counts = COUNTS,
    .lower = true,
    .room = sizeof(struct ter),
    .room_release = ter_room_release,
    .count = ter_count,
    .score = ter_score,
    .sign = ter_sign,
};
