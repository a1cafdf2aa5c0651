/*
 * wire.h - messages between the processes of a job: the few calls of MPI that the cluster uses.
 *
 * The library of MPI is not linked but opened at run time, and only by a process that was started
 * as one of several, so that a process of its own starts as if there were no MPI (wire_mpi.c).
 * Where MPI was not found when heed was built, wire_open says so (wire_none.c).
 *
 * No call waits. Only one thread at a time may be in a call; the cluster has a lock for it.
 */
#ifndef HEED_CLUSTER_WIRE_H
#define HEED_CLUSTER_WIRE_H
#include "heed.h"

struct wire;

/* A message that is being sent or received; NULL: none is, or it is complete. */
typedef void *wire_request;

/* Joins the job. */
enum heed_status wire_open(struct wire **out, int *rank, int *ranks, struct heed_error *err);
/* Leaves the job; waits for the other ranks to do so. No request may be pending. */
void wire_close(struct wire *w);
/* Ends all processes of the job, this one included. */
void wire_abort(struct wire *w);

enum { WIRE_BYTES_MAX = 1 << 30 }; /* of a message */

/* These return false where MPI reports an error. The bytes must stay valid until the request is
 * complete. Messages between two ranks with the same tag arrive in the order of their sending. */
bool wire_send(struct wire *w, wire_request *r, const void *data, size_t bytes, int to, int tag);
bool wire_receive(struct wire *w, wire_request *r, void *data, size_t bytes, int from, int tag);
/* Sets *r to NULL if the message is complete. Like wire_probe, it moves on all messages that are
 * under way. */
bool wire_test(struct wire *w, wire_request *r);
/* Whether a message with this tag from any rank has arrived; *from and *bytes are set if so. */
bool wire_probe(struct wire *w, int tag, bool *found, int *from, size_t *bytes);

#endif
