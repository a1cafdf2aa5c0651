/*
 * network.h - sockets and HTTP/1.1, by libmicrohttpd. One thread of the library answers all
 * connections; a call that waits for a translation is suspended and needs no thread. A second
 * thread, the keeper, watches over what libmicrohttpd does not see: clients that go away while
 * their call is suspended, clients that take too long to send a request or to read a reply, models
 * whose files change, training runs that go on, and the end.
 */
#ifndef HEED_SERVE_NETWORK_H
#define HEED_SERVE_NETWORK_H
#include "serve/server.h"

struct network;

/* Listens at the host and port of the server's options, and starts both threads. */
struct network *network_open(struct server *s, struct heed_error *err);
const char *network_url(const struct network *n);
/* Lets the keeper see that the server's flags have changed, or that models are to be loaded anew
 * and the access log is to be opened again. */
void network_notify(struct network *n, bool reload);
bool network_stopped(const struct network *n);
void network_free(struct network *n);

#endif
