/*
 * trace.cu - measures what each op takes: an event is recorded at each mark, and the time between
 * two marks counts for the first.
 */
#include <stdlib.h>
#include <string.h>

#include "ops/cuda/cuda.h"

enum { TRACE_NAMES = 64, TRACE_MARKS = 1 << 15 };

struct trace {
    struct op_time time[TRACE_NAMES];
    int names;
    struct {
        cudaEvent_t event;
        int name;
    } mark[TRACE_MARKS];
    int marks, events; /* used; created */
};

static int trace_name(struct trace *t, const char *name)
{
    for (int i = 0; i < t->names; i++)
        if (!strcmp(t->time[i].name, name)) return i;
    if (t->names == TRACE_NAMES) return TRACE_NAMES - 1;
    t->time[t->names].name = name;
    return t->names++;
}

static void trace_settle(struct gpu *c)
{
    struct trace *t = c->trace;
    cuda_check(c, cudaStreamSynchronize(c->stream));
    for (int i = 0; i + 1 < t->marks; i++) {
        float ms = 0;
        cudaEventElapsedTime(&ms, t->mark[i].event, t->mark[i + 1].event);
        t->time[t->mark[i].name].ms += (double)ms;
    }
    t->marks = 0;
}

void cuda_mark(struct gpu *c, const char *name, double bytes, double flops)
{
    struct trace *t = c->trace;
    if (!t) return;
    if (t->marks == TRACE_MARKS) trace_settle(c);
    if (t->marks == t->events) cuda_check(c, cudaEventCreate(&t->mark[t->events++].event));
    int i = trace_name(t, name);
    t->time[i].calls++;
    t->time[i].bytes += bytes;
    t->time[i].flops += flops;
    t->mark[t->marks].name = i;
    cuda_check(c, cudaEventRecord(t->mark[t->marks++].event, c->stream));
}

void cuda_trace_close(struct gpu *c)
{
    struct trace *t = c->trace;
    for (int i = 0; t && i < t->events; i++) cudaEventDestroy(t->mark[i].event);
    free(t);
    c->trace = NULL;
}

int cuda_trace(struct backend *be, struct op_time *out, int max)
{
    struct gpu *c = gpu_of(be);
    cudaSetDevice(c->device);
    if (!c->trace) {
        c->trace = (struct trace *)calloc(1, sizeof *c->trace);
        return 0;
    }
    trace_settle(c);
    int n = c->trace->names < max ? c->trace->names : max;
    memcpy(out, c->trace->time, n * sizeof *out);
    cuda_trace_close(c);
    return n;
}
