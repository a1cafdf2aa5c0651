/*
 * graph.cu - captures a run of ops as a CUDA graph and launches it again. Nothing is captured while
 * ops are timed.
 */
#include <stdlib.h>

#include "ops/cuda/cuda.h"

struct graph {
    cudaGraphExec_t exec;
};

bool cuda_capture_begin(struct backend *be)
{
    struct gpu *c = gpu_of(be);
    if (c->trace || c->plain || c->failed.status) return false;
    cudaSetDevice(c->device);
    if (cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess)
        return true;
    cudaGetLastError();
    return false;
}

struct graph *cuda_capture_end(struct backend *be)
{
    struct gpu *c = gpu_of(be);
    cudaGraph_t graph = NULL;
    struct graph *g = (struct graph *)calloc(1, sizeof *g);
    cudaError_t e = cudaStreamEndCapture(c->stream, &graph);
    if (g && e == cudaSuccess) e = cudaGraphInstantiate(&g->exec, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    if (g && e == cudaSuccess && !c->failed.status) return g;
    cudaGetLastError();
    c->failed.status = HEED_OK; /* the caller runs the ops again, which report their own errors */
    if (g && g->exec) cudaGraphExecDestroy(g->exec);
    free(g);
    return NULL;
}

void cuda_graph_launch(struct backend *be, struct graph *g)
{
    struct gpu *c = gpu_of(be);
    c->op = "graph";
    cudaSetDevice(c->device);
    cuda_check(c, cudaGraphLaunch(g->exec, c->stream));
}

void cuda_graph_free(struct backend *be, struct graph *g)
{
    cudaSetDevice(gpu_of(be)->device);
    cudaStreamSynchronize(gpu_of(be)->stream);
    cudaGraphExecDestroy(g->exec);
    free(g);
}
