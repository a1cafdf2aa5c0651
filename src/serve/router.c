/*
 * router.c - which handler answers which request; see server.h.
 */
#include <string.h>
#include <strings.h>

#include "serve/ask.h"
#include "serve/server.h"

static const struct route {
    const char *method, *pattern; /* a star stands for one part of the path, route_name */
    void (*answer)(struct call *c);
    bool reads_body; /* and needs an API key, where keys are needed */
} routes[] = {
    {"POST", "/translate", api_translate, true},
    {"POST", "/v1/translate", api_v1_translate, true},
    {"POST", "/detect", api_detect, true},
    {"POST", "/translate_file", api_file, false},
    {"POST", "/suggest", api_suggest, false},
    {"GET", "/languages", api_languages, false},
    {"GET", "/frontend/settings", api_settings, false},
    {"GET", "/health", api_health, false},
    {"GET", "/spec", api_spec, false},
    {"GET", "/metrics", api_metrics, false},
    {"GET", "/v1/models", api_v1_models, false},
    {"GET", "/v1/runs", api_v1_runs, false},
    {"GET", "/v1/runs/*/log", api_v1_run_log, false},
    {"GET", "/v1/runs/*/samples", api_v1_run_samples, false},
    {"GET", "/v1/runs/*/attention", api_v1_run_attention, false},
    {"GET", "/v1/runs/*/events", api_v1_run_events, false},
    {"GET", "/web/*", api_asset, false},
    {"GET", "/", api_page, false},
};

enum { ROUTES = sizeof routes / sizeof routes[0] };

/* Whether a path fits a pattern; what the star stands for is copied to name. */
static bool matches(const char *pattern, const char *path, char name[ROUTE_NAME_MAX])
{
    const char *star = strchr(pattern, '*');
    if (!star) return !strcmp(pattern, path);
    size_t before = (size_t)(star - pattern);
    if (strncmp(pattern, path, before) != 0) return false;
    size_t n = strcspn(path + before, "/");
    if (n == 0 || n >= ROUTE_NAME_MAX || strcmp(path + before + n, star + 1) != 0) return false;
    memcpy(name, path + before, n);
    name[n] = '\0';
    return true;
}

/* The route of a call; NULL: there is none. Sets `allowed` to the method of a route that has the
 * path and another method. */
static const struct route *find(struct call *c, const char **allowed)
{
    const char *method = strcmp(c->method, "HEAD") != 0 ? c->method : "GET";
    *allowed = NULL;
    for (int i = 0; i < ROUTES; i++) {
        if (!matches(routes[i].pattern, c->path, c->route_name)) continue;
        *allowed = routes[i].method;
        c->route = routes[i].pattern;
        if (!strcmp(routes[i].method, method)) return &routes[i];
    }
    return NULL;
}

/* Whether the call has a key, where it needs one; false after an error reply. */
static bool has_key(struct call *c)
{
    const json_t *member = json_object_get(c->json, "api_key");
    if (member && !json_is_string(member) && !json_is_null(member)) {
        reply_error(c, 400, "api_key is no string");
        return false;
    }
    if (!c->server->keys) return true;
    const char *key = call_parameter(c, "api_key");
    if (!key) key = fields_find(&c->query, "api_key");
    if (!key && c->authorization && !strncasecmp(c->authorization, "Bearer ", 7)) {
        key = c->authorization + 7;
    }
    if (!key || !*key) {
        reply_error(c, 400, "Please contact the server operator to get an API key");
    } else if (!keys_have(c->server->keys, key)) {
        reply_error(c, 403, "Invalid API key");
    } else {
        return true;
    }
    return false;
}

bool route_refuse(struct call *c)
{
    const char *allowed;
    const struct route *r = find(c, &allowed);
    if (r && !c->too_large) return false;
    if (r) {
        reply_error(c, 413, "The request has more than %d bytes", c->server->o.max_body);
    } else if (allowed && !strcmp(c->method, "OPTIONS") && c->server->o.cors) {
        reply_text(c, "text/plain", strdup(""));
        c->reply.status = 204;
    } else if (allowed) {
        reply_error(c, 405, "The method of %.200s is %s, not %.20s", c->path, allowed, c->method);
        c->reply.allow = allowed;
    } else {
        reply_error(c, 404, "There is nothing at %.200s", c->path);
    }
    return true;
}

void route_call(struct call *c)
{
    const char *allowed;
    const struct route *r = route_refuse(c) ? NULL : find(c, &allowed);
    if (r && r->reads_body && c->crowds) {
        reply_error(c, 429, "Slowdown: %d requests of this address are being answered",
                    c->server->o.max_per_client);
    } else if (r && (!r->reads_body || (call_read_body(c) && has_key(c)))) {
        r->answer(c);
    }
    call_forget_body(c);
}

void route_finish(struct call *c)
{
    switch (c->task->state) {
    case TASK_LATE:
        reply_error(c, 503, "The translation took more than %d seconds", c->server->o.timeout);
        break;
    case TASK_FAILED:
        reply_error(c, 500, "Cannot translate text: %s", c->task->why);
        break;
    case TASK_CANCELLED: /* where the client has gone, there is nobody to reply to */
        if (c->server->stopping_now) reply_error(c, 503, "The server stops");
        break;
    case TASK_UNDER_WAY:
    case TASK_DONE:
        c->finish(c);
        break;
    }
}
