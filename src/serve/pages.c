/*
 * pages.c - the page and its parts, and the description of the API.
 */
#include <string.h>

#include "serve/ask.h"
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

/* Adds the values that a schema allows. */
static void set_values(json_t *spec, const char *schema, json_t *values)
{
    json_t *of = json_object_get(json_object_get(spec, "components"), "schemas");
    json_object_set_new(json_object_get(of, schema), "enum", values);
}

/* The description says which languages and models there are now. */
void api_spec(struct call *c)
{
    struct known_languages known;
    bool good = known_languages_open(&known, c->server->models);
    json_t *languages = json_array(), *sources = json_array(), *models = json_array();
    json_t *spec = good ? json_loads(openapi_json, 0, NULL) : NULL;
    json_array_append_new(sources, json_string("auto"));
    for (int i = 0; i < known.n; i++) {
        json_array_append_new(languages, json_string(known.language[i]));
        json_array_append_new(sources, json_string(known.language[i]));
    }
    for (int i = 0; i < known.held_n; i++) {
        json_array_append_new(models, json_string(known.held[i]->name));
    }
    set_values(spec, "Language", languages);
    set_values(spec, "Source", sources);
    set_values(spec, "ModelName", models);
    known_languages_release(&known);
    reply_json(c, 200, spec);
}
