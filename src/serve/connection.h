/*
 * connection.h - the connections of the server and their calls, shared by network.c, whose
 * functions libmicrohttpd calls, and keeper.c.
 */
#ifndef HEED_SERVE_CONNECTION_H
#define HEED_SERVE_CONNECTION_H
#include <netinet/in.h>

#include "serve/network.h"

enum phase {
    PHASE_IDLE,    /* no request, or not all of its headers yet */
    PHASE_BODY,    /* a body is coming */
    PHASE_ANSWER,  /* the answer is being made */
    PHASE_SENDING, /* the answer goes out */
    PHASES
};

/* A connection. */
struct peer {
    int fd;
    enum phase phase;        /* guarded by the lock of the network, as is all of this */
    double since;            /* when the phase began */
    struct http_call *waits; /* its call, while that is suspended */
    uint64_t wait;           /* number of that suspension, of all connections */
    char address[INET6_ADDRSTRLEN];
    struct peer *before, *next;
};

/* A call with its connection. */
struct http_call {
    struct call call;
    struct network *network;
    struct MHD_Connection *connection;
    struct peer *peer;
    double began;
    bool waiting; /* it is suspended, or about to be */
};

struct network {
    struct server *server;
    struct MHD_Daemon *daemon;
    int listener;
    char url[128];
    pthread_mutex_t lock;
    struct peer *first; /* the connections */
    int calls;          /* that are not over */
    uint64_t waits;     /* suspensions so far */
    int epoll;          /* tells of clients that go away while their call is suspended */
    int event;          /* tells the keeper that something has changed */
    pthread_t keeper;
    bool keeper_runs;
    atomic_bool reload, end;
    atomic_bool stopped; /* no call is under way, and none is taken: set with the lock held */
};

/* The keeper's thread; takes the network. */
void *keeper_run(void *network);

#endif
