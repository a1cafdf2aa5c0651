/*
 * pages.c - the page and its parts, and the description of the API.
 */
#include <string.h>

#include "serve/assets.h"
#include "serve/server.h"

extern const char openapi_json[]; /* src/serve/openapi.json, embedded */

static const char POLICY[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static void reply_asset(struct call *c, const char *name)
{
    const struct asset *a = asset_find(name);
    if (!a) {
        reply_error(c, 404, "There is nothing at %.200s", c->path);
        return;
    }
    bool known = c->if_none_match && strstr(c->if_none_match, a->etag);
    c->reply = (struct reply){.status = known ? 304 : 200,
                              .type = a->type,
                              .fixed = (const char *)a->data,
                              .n = known ? 0 : a->n,
                              .etag = a->etag,
                              .policy = POLICY,
                              .cache = "no-cache"}; /* a new version is seen at once */
}

void api_page(struct call *c)
{
    reply_asset(c, "index.html");
}

void api_asset(struct call *c)
{
    reply_asset(c, c->route_name);
}

void api_spec(struct call *c)
{
    c->reply = (struct reply){.status = 200,
                              .type = "application/json",
                              .fixed = openapi_json,
                              .n = strlen(openapi_json)};
}
