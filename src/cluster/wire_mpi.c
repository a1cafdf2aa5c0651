/*
 * wire_mpi.c - messages by Open MPI; see wire.h.
 *
 * mpi.h gives the types and constants; functions and objects are looked up in the library when it
 * is opened. The names of objects such as MPI_BYTE are macros for variables of the library
 * (ompi_mpi_byte), which are looked up as well.
 */
#include <assert.h>
#include <dlfcn.h>
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cluster/wire.h"

#ifndef OPEN_MPI
#error "mpi.h is not that of Open MPI, whose variables this file looks up"
#endif

struct wire {
    void *library;
    MPI_Comm world;
    MPI_Datatype byte;
    MPI_Errhandler errors_return;
    int (*init_thread)(int *argc, char ***argv, int required, int *provided);
    int (*finalize)(void);
    int (*abort)(MPI_Comm comm, int code);
    int (*set_errhandler)(MPI_Comm comm, MPI_Errhandler handler);
    int (*rank)(MPI_Comm comm, int *rank);
    int (*size)(MPI_Comm comm, int *size);
    int (*isend)(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                 MPI_Request *r);
    int (*irecv)(void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                 MPI_Request *r);
    int (*test)(MPI_Request *r, int *done, MPI_Status *status);
    int (*iprobe)(int from, int tag, MPI_Comm comm, int *found, MPI_Status *status);
    int (*get_count)(const MPI_Status *status, MPI_Datatype type, int *n);
};

/* The ABI of Open MPI 3 to 5. */
static const char LIBRARY[] = "libmpi.so.40";

/* Looks up everything; the name of the first that is missing, or NULL. */
static const char *look_up(struct wire *w)
{
    const struct {
        const char *name;
        void *slot; /* a pointer to a function, or to an object */
    } symbol[] = {
        {"ompi_mpi_comm_world", &w->world},
        {"ompi_mpi_byte", &w->byte},
        {"ompi_mpi_errors_return", &w->errors_return},
        {"MPI_Init_thread", &w->init_thread},
        {"MPI_Finalize", &w->finalize},
        {"MPI_Abort", &w->abort},
        {"MPI_Comm_set_errhandler", &w->set_errhandler},
        {"MPI_Comm_rank", &w->rank},
        {"MPI_Comm_size", &w->size},
        {"MPI_Isend", &w->isend},
        {"MPI_Irecv", &w->irecv},
        {"MPI_Test", &w->test},
        {"MPI_Iprobe", &w->iprobe},
        {"MPI_Get_count", &w->get_count},
    };
    for (size_t i = 0; i < sizeof symbol / sizeof *symbol; i++) {
        void *found = dlsym(w->library, symbol[i].name);
        if (!found) return symbol[i].name;
        memcpy(symbol[i].slot, &found, sizeof found);
    }
    return NULL;
}

/* Errors of MPI are returned from here on; before, they end the job with a message of MPI's own. */
static enum heed_status join(struct wire *w, int *rank, int *ranks, struct heed_error *err)
{
    int provided = MPI_THREAD_SINGLE;
    if (w->init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
        return error_set(err, HEED_EIO, "MPI_Init_thread failed");
    if (provided < MPI_THREAD_SERIALIZED) {
        w->finalize();
        return error_set(err, HEED_EUNSUPPORTED,
                         "%s allows calls from one thread only (level %d), expected "
                         "MPI_THREAD_SERIALIZED (level %d)",
                         LIBRARY, provided, MPI_THREAD_SERIALIZED);
    }
    w->set_errhandler(w->world, w->errors_return);
    w->rank(w->world, rank);
    w->size(w->world, ranks);
    return HEED_OK;
}

enum heed_status wire_open(struct wire **out, int *rank, int *ranks, struct heed_error *err)
{
    struct wire *w = calloc(1, sizeof *w);
    if (!w) return error_memory(err, sizeof *w, "the messages of a cluster");
    enum heed_status s = HEED_OK;
    /* Plugins of Open MPI expect its symbols to be visible to them. */
    w->library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL);
    if (!w->library) s = error_set(err, HEED_EUNSUPPORTED, "cannot open MPI: %s", dlerror());
    const char *missing = s ? NULL : look_up(w);
    if (missing)
        s = error_set(err, HEED_EUNSUPPORTED, "%s lacks %s: is it Open MPI's?", LIBRARY, missing);
    if (!s) s = join(w, rank, ranks, err);
    if (s) {
        free(w);
        return s;
    }
    *out = w;
    return HEED_OK;
}

/* The library stays loaded, because threads of its own may still run. */
void wire_close(struct wire *w)
{
    w->finalize();
    free(w);
}

void wire_abort(struct wire *w)
{
    w->abort(w->world, EXIT_FAILURE);
    _Exit(EXIT_FAILURE);
}

bool wire_send(struct wire *w, wire_request *r, const void *data, size_t bytes, int to, int tag)
{
    MPI_Request q;
    assert(bytes <= WIRE_BYTES_MAX);
    if (w->isend(data, (int)bytes, w->byte, to, tag, w->world, &q) != MPI_SUCCESS) return false;
    *r = q;
    return true;
}

bool wire_receive(struct wire *w, wire_request *r, void *data, size_t bytes, int from, int tag)
{
    MPI_Request q;
    assert(bytes <= WIRE_BYTES_MAX);
    if (w->irecv(data, (int)bytes, w->byte, from, tag, w->world, &q) != MPI_SUCCESS) return false;
    *r = q;
    return true;
}

bool wire_test(struct wire *w, wire_request *r)
{
    MPI_Request q = *r;
    int done = 0;
    if (w->test(&q, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (done) *r = NULL;
    return true;
}

bool wire_probe(struct wire *w, int tag, bool *found, int *from, size_t *bytes)
{
    MPI_Status status;
    int there = 0, n = 0;
    if (w->iprobe(MPI_ANY_SOURCE, tag, w->world, &there, &status) != MPI_SUCCESS) return false;
    *found = there;
    if (!there) return true;
    w->get_count(&status, w->byte, &n);
    *from = status.MPI_SOURCE;
    *bytes = (size_t)n;
    return true;
}
