/*
 * wire_none.c - a build without MPI; see wire.h. Nothing but wire_open is ever called.
 */
#include <stdlib.h>

#include "base/error.h"
#include "cluster/wire.h"

enum heed_status wire_open(struct wire **out, int *rank, int *ranks, struct heed_error *err)
{
    (void)out, (void)rank, (void)ranks;
    return error_set(err, HEED_EUNSUPPORTED,
                     "this heed was built without MPI and cannot be one of several processes: "
                     "install Open MPI with its headers (package libopenmpi-dev) and build again");
}

void wire_close(struct wire *w)
{
    (void)w;
}

void wire_abort(struct wire *w)
{
    (void)w;
    abort();
}

bool wire_send(struct wire *w, wire_request *r, const void *data, size_t bytes, int to, int tag)
{
    (void)w, (void)r, (void)data, (void)bytes, (void)to, (void)tag;
    return false;
}

bool wire_receive(struct wire *w, wire_request *r, void *data, size_t bytes, int from, int tag)
{
    (void)w, (void)r, (void)data, (void)bytes, (void)from, (void)tag;
    return false;
}

bool wire_test(struct wire *w, wire_request *r)
{
    (void)w, (void)r;
    return false;
}

bool wire_probe(struct wire *w, int tag, bool *found, int *from, size_t *bytes)
{
    (void)w, (void)tag, (void)found, (void)from, (void)bytes;
    return false;
}
