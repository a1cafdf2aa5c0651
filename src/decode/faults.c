/*
 * faults.c - what is wrong with a translation; see faults.h.
 */
#include "decode/faults.h"

#include <string.h>

/* Whether somewhere the same `period` ids come `times` times in a row. */
static bool has_loop(const struct heed_ids *ids, size_t period, size_t times)
{
    size_t same = 0;
    for (size_t i = period; i < ids->n; i++) {
        same = ids->v[i] == ids->v[i - period] ? same + 1 : 0;
        if (same >= period * (times - 1)) return true;
    }
    return false;
}

/* Whether the output has a loop that the source has not. */
static bool is_loop(const struct heed_ids *src, const struct heed_ids *out)
{
    enum { LONGEST_PERIOD = 12, TIMES = 4, TIMES_OF_ONE = 8 };
    for (size_t period = 1; period <= LONGEST_PERIOD; period++) {
        size_t times = period == 1 ? TIMES_OF_ONE : TIMES;
        if (has_loop(out, period, times) && !has_loop(src, period, times)) return true;
    }
    return false;
}

static bool is_copy(const struct heed_ids *src, const struct heed_ids *out)
{
    enum { SHORT = 4 }; /* a name or a number may be the same in both languages */
    return out->n > SHORT && out->n == src->n && !memcmp(out->v, src->v, out->n * sizeof *out->v);
}

unsigned faults_of(const struct heed_ids *src, const struct translation *t)
{
    return (is_loop(src, &t->ids) ? HEED_FLAG_LOOP : 0) |
           (is_copy(src, &t->ids) ? HEED_FLAG_COPY : 0) | (t->ended ? 0 : HEED_FLAG_CUT);
}

const char *heed_flag_name(int i)
{
    static const char *const name[] = {"loop", "copy", "cut", "retried", "unspelled"};
    return i >= 0 && i < (int)(sizeof name / sizeof *name) ? name[i] : NULL;
}
