/*
 * runs.c - training runs to watch; see runs.h.
 *
 * Logs are read from the byte where the client stopped, so that a long run costs what is new. The
 * number `next` that a client passes on is that byte.
 */
#define _GNU_SOURCE /* memmem */
#include "serve/runs.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "serve/server.h"
#include "serve/stream.h"

enum {
    RUN_PATH_MAX = 4096,
    POINTS_MOST = 2000,    /* steps in an answer: more are thinned out */
    BLOCK = 8 << 20,       /* bytes of a file that are read at once; a longer line is passed over */
    RUNNING_SECONDS = 120, /* a run that has written nothing for longer has stopped */
    ALIVE_TICKS = 75       /* between two comments that keep a stream alive */
};

struct watcher; /* a stream of one run */

/* How many steps a run is to have, as far as its log was searched for it. */
struct plan {
    char *log;
    ino_t file;         /* a run that is resumed may put another file in place of its log */
    long long searched; /* bytes of the log */
    json_int_t steps;   /* as the last start or resumption in them says; 0: not known */
    struct plan *next;
};

struct runs {
    const char *const *dir; /* [n] */
    int n;
    struct plan *plan; /* of the HTTP thread */
    pthread_mutex_t lock;
    struct watcher *first;
};

struct watcher {
    struct runs *runs;
    struct call *call;
    char log[RUN_PATH_MAX];
    long long at;      /* bytes that were sent */
    atomic_llong seen; /* bytes that were looked at: the last line may be incomplete */
    bool asleep, woken, end;
    int quiet; /* ticks without anything new */
    struct watcher *before, *next;
};

struct runs *runs_open(const char *const *dir, int n, struct heed_error *err)
{
    struct runs *r = calloc(1, sizeof *r);
    if (!r) {
        *err = (struct heed_error){HEED_ENOMEM, "out of memory for training runs"};
        return NULL;
    }
    r->dir = dir;
    r->n = n;
    pthread_mutex_init(&r->lock, NULL);
    return r;
}

void runs_free(struct runs *r)
{
    if (!r) return;
    while (r->plan) {
        struct plan *next = r->plan->next;
        free(r->plan->log);
        free(r->plan);
        r->plan = next;
    }
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* ---- finding runs ---- */

/* DIR/NAME in path; false: it is too long. */
static bool join(char path[RUN_PATH_MAX], const char *dir, const char *name)
{
    int n = snprintf(path, RUN_PATH_MAX, "%s/%s", dir, name);
    return n > 0 && n < RUN_PATH_MAX;
}

static bool has_log(const char *dir)
{
    char path[RUN_PATH_MAX];
    struct stat found;
    return join(path, dir, "log.jsonl") && stat(path, &found) == 0 && S_ISREG(found.st_mode);
}

/* The last part of a path. */
static const char *last_part(const char *path, size_t *n)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t at = end;
    while (at > 0 && path[at - 1] != '/') at--;
    *n = end - at;
    return path + at;
}

/* Calls `visit` for every run, which returns false to stop. A directory that is watched is a run,
 * or holds runs. */
static void each_run(struct runs *r, bool (*visit)(void *to, const char *name, const char *dir),
                     void *to)
{
    for (int i = 0; i < r->n; i++) {
        size_t n;
        const char *part = last_part(r->dir[i], &n);
        char name[256], path[RUN_PATH_MAX];
        snprintf(name, sizeof name, "%.*s", (int)n, part);
        if (has_log(r->dir[i])) {
            if (!visit(to, name, r->dir[i])) return;
            continue;
        }
        DIR *d = opendir(r->dir[i]);
        for (struct dirent *e; d && (e = readdir(d));) {
            if (e->d_name[0] == '.' || !join(path, r->dir[i], e->d_name) || !has_log(path))
                continue;
            if (visit(to, e->d_name, path)) continue;
            closedir(d);
            return;
        }
        if (d) closedir(d);
    }
}

struct wanted {
    const char *name;
    char *dir; /* [RUN_PATH_MAX] */
    bool found;
};

static bool compare_name(void *to, const char *name, const char *dir)
{
    struct wanted *w = to;
    w->found = !strcmp(w->name, name);
    if (w->found) snprintf(w->dir, RUN_PATH_MAX, "%s", dir);
    return !w->found;
}

/* The directory of the run that the path of the call names, joined with the name of a file; false
 * after an error reply. */
static bool find_file(struct call *c, const char *file, char path[RUN_PATH_MAX])
{
    char dir[RUN_PATH_MAX] = "";
    struct wanted w = {.name = c->route_name, .dir = dir};
    if (c->server->runs) each_run(c->server->runs, compare_name, &w);
    if (w.found && join(path, dir, file)) return true;
    reply_error(c, 404, "There is no run %s; GET /v1/runs lists them", c->route_name);
    return false;
}

/* ---- reading ---- */

/* Whole lines of a file from byte `from` on, at most `most` bytes; the caller frees them. *n is 0
 * where there are none, and NULL is returned where the file cannot be read. A line that is longer
 * than `most` comes in parts. */
static char *read_lines(const char *path, long long from, size_t most, size_t *n)
{
    FILE *f = fopen(path, "rb");
    struct stat found;
    char *text = NULL;
    size_t size = 0;
    if (f && fstat(fileno(f), &found) == 0 && from <= (long long)found.st_size &&
        fseeko(f, (off_t)from, SEEK_SET) == 0) {
        size = (size_t)(found.st_size - from);
        if (size > most) size = most;
        text = malloc(size + 1);
        size = text ? fread(text, 1, size, f) : 0;
    }
    if (f) fclose(f);
    *n = size;
    while (*n > 0 && text[*n - 1] != '\n') --*n;
    if (*n == 0 && size == most) *n = size;
    return text;
}

/* Lines that were not looked at yet. */
struct lines {
    const char *at, *end;
};

/* The next line that is a JSON object; NULL at the end. Other lines are passed over. */
static json_t *next_object(struct lines *l)
{
    while (l->at < l->end) {
        const char *line = l->at, *end = memchr(line, '\n', (size_t)(l->end - line));
        if (!end) end = l->end;
        l->at = end + 1;
        json_t *value = json_loadb(line, (size_t)(end - line), 0, NULL);
        if (json_is_object(value)) return value;
        json_decref(value);
    }
    return NULL;
}

/* Calls `visit` for every object of a file, which returns false to stop. */
static void each_object(const char *path, bool (*visit)(void *to, json_t *line), void *to)
{
    bool more = true;
    size_t n;
    char *text;
    for (long long from = 0; more && (text = read_lines(path, from, BLOCK, &n)); from += n) {
        struct lines l = {text, text + n};
        for (json_t *line; more && (line = next_object(&l)); json_decref(line)) {
            more = visit(to, line);
        }
        more = more && n > 0;
        free(text);
    }
}

/* The last line of a log. */
static json_t *last_object(const char *path)
{
    enum { TAIL = 64 << 10 };
    struct stat found;
    size_t n;
    if (stat(path, &found) != 0) return NULL;
    long long from = found.st_size > TAIL ? found.st_size - TAIL : 0;
    char *text = read_lines(path, from, TAIL, &n);
    if (!text || n == 0) {
        free(text);
        return NULL;
    }
    char *line = text + n - 1;
    while (line > text && line[-1] != '\n') line--;
    json_t *last = json_loadb(line, (size_t)(text + n - line), 0, NULL);
    free(text);
    return last;
}

/* ---- GET /v1/runs ---- */

/* "finished", "running" or "stopped" */
static const char *state_of(const char *log, const json_t *last)
{
    const char *event = json_string_value(json_object_get(last, "event"));
    const char *text = json_string_value(json_object_get(last, "text"));
    struct stat found;
    if (event && !strcmp(event, "done")) {
        return text && !strcmp(text, "interrupted") ? "stopped" : "finished";
    }
    bool fresh = stat(log, &found) == 0 && time(NULL) - found.st_mtime < RUNNING_SECONDS;
    return fresh ? "running" : "stopped";
}

/* The plan of the run with this log, which is new where there was none; NULL: out of memory. */
static struct plan *plan_of(struct runs *r, const char *log)
{
    for (struct plan *p = r->plan; p; p = p->next) {
        if (!strcmp(p->log, log)) return p;
    }
    struct plan *p = calloc(1, sizeof *p);
    if (p) p->log = strdup(log);
    if (!p || !p->log) {
        free(p);
        return NULL;
    }
    p->next = r->plan;
    return r->plan = p;
}

/* The number of steps of the last start or resumption in these lines; 0: there is none. */
static json_int_t last_start(const char *text, size_t n)
{
    static const char mark[] = "\"event\":\"start\"";
    const char *start = NULL;
    for (const char *p = text; p && (p = memmem(p, n - (size_t)(p - text), mark, sizeof mark - 1));
         p++) {
        start = p;
    }
    if (!start) return 0;
    while (start > text && start[-1] != '\n') start--;
    struct lines from_start = {start, text + n};
    json_t *line = next_object(&from_start);
    json_int_t steps = json_integer_value(json_object_get(line, "steps"));
    json_decref(line);
    return steps;
}

/* The number of steps that the run was last started or resumed for; 0: not known. Each byte of a
 * log is searched once, so that a client that asks again and again costs what is new. */
static json_int_t steps_of(struct runs *r, const char *log)
{
    struct plan *p = plan_of(r, log);
    struct stat found;
    if (!p || stat(log, &found) != 0) return 0;
    if (found.st_ino != p->file || (long long)found.st_size < p->searched) {
        p->file = found.st_ino;
        p->searched = p->steps = 0;
    }
    size_t n = 1;
    while (n > 0) {
        char *text = read_lines(log, p->searched, BLOCK, &n);
        json_int_t steps = last_start(text, n);
        if (steps) p->steps = steps;
        p->searched += (long long)n;
        free(text);
    }
    return p->steps;
}

struct run_list {
    struct runs *runs;
    json_t *list;
};

static bool add_run(void *to, const char *name, const char *dir)
{
    const struct run_list *l = to;
    char log[RUN_PATH_MAX];
    if (!join(log, dir, "log.jsonl")) return true;
    json_t *last = last_object(log);
    json_int_t steps = steps_of(l->runs, log);
    json_t *run =
        json_pack("{so ss sI}", "name", json_text(name, strlen(name)), "state", state_of(log, last),
                  "step", json_integer_value(json_object_get(last, "step")));
    if (steps) json_object_set_new(run, "steps", json_integer(steps));
    json_array_append_new(l->list, run);
    json_decref(last);
    return true;
}

void api_v1_runs(struct call *c)
{
    struct run_list l = {c->server->runs, json_array()};
    if (l.runs) each_run(l.runs, add_run, &l);
    reply_json(c, 200, json_pack("{so}", "runs", l.list));
}

/* ---- GET /v1/runs/NAME/log ---- */

/* A new object with these members of another. */
static json_t *pick(const json_t *from, const char *const *name)
{
    json_t *out = json_object();
    for (; *name; name++) {
        json_t *value = json_object_get(from, *name);
        if (value) json_object_set(out, *name, value);
    }
    return out;
}

/* Keeps every second element, and the last. */
static json_t *thin(json_t *list)
{
    json_t *out = json_array();
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        if (i % 2 == 0 || i == n - 1) json_array_append(out, json_array_get(list, i));
    }
    json_decref(list);
    return out;
}

/* What a log has from byte `from` on; NULL: it cannot be read. */
static json_t *log_since(const char *path, long long from)
{
    static const char *const step_members[] = {"step",     "loss",    "lr", "norm",
                                               "tokens_s", "seconds", NULL};
    static const char *const valid_members[] = {"step", "nll", "bleu", "chrf", "best", NULL};
    size_t n;
    char *text = read_lines(path, from, BLOCK, &n);
    struct lines l = {text, text ? text + n : NULL};
    json_t *steps = json_array(), *valid = json_array();
    for (json_t *line; (line = next_object(&l)); json_decref(line)) {
        const char *event = json_string_value(json_object_get(line, "event"));
        if (event && !strcmp(event, "step")) {
            json_array_append_new(steps, pick(line, step_members));
        } else if (event && !strcmp(event, "valid")) {
            json_array_append_new(valid, pick(line, valid_members));
        }
        if (json_array_size(steps) > 2 * POINTS_MOST) steps = thin(steps);
    }
    if (json_array_size(steps) > POINTS_MOST) steps = thin(steps);
    json_t *out = text ? json_pack("{sI sO sO}", "next", (json_int_t)(from + (long long)n), "steps",
                                   steps, "valid", valid)
                       : NULL;
    json_decref(steps);
    json_decref(valid);
    free(text);
    return out;
}

/* The parameter `name` of the query as a number of at least 0; `absent` where there is none, -1
 * after an error reply. */
static long long query_number(struct call *c, const char *name, long long absent)
{
    const char *text = fields_find(&c->query, name);
    char *end;
    if (!text) return absent;
    long long value = strtoll(text, &end, 10);
    if (end > text && !*end && value >= 0) return value;
    reply_error(c, 400, "%s is '%.40s', expected a whole number of at least 0", name, text);
    return -1;
}

/* A log that is shorter than what a client has read was begun anew. */
static long long place_in(const char *path, long long after)
{
    struct stat found;
    return stat(path, &found) == 0 && (long long)found.st_size >= after ? after : 0;
}

void api_v1_run_log(struct call *c)
{
    char path[RUN_PATH_MAX];
    long long after = query_number(c, "after", 0);
    if (after < 0 || !find_file(c, "log.jsonl", path)) return;
    reply_json(c, 200, log_since(path, place_in(path, after)));
}

/* ---- GET /v1/runs/NAME/samples and attention: both are in samples.jsonl ---- */

/* Says of a validation that it has attention, which is large and asked for by itself. */
static bool add_sample(void *list, json_t *line)
{
    bool shown = json_is_object(json_object_get(line, "attention"));
    json_object_set_new(line, "attention", json_boolean(shown));
    json_array_append(list, line);
    return true;
}

void api_v1_run_samples(struct call *c)
{
    char path[RUN_PATH_MAX];
    if (!find_file(c, "samples.jsonl", path)) return;
    json_t *list = json_array();
    each_object(path, add_sample, list);
    reply_json(c, 200, json_pack("{so}", "samples", list));
}

struct wanted_attention {
    long long step;
    json_t *found; /* or NULL */
};

static bool find_attention(void *to, json_t *line)
{
    struct wanted_attention *w = to;
    json_t *attention = json_object_get(line, "attention");
    bool same = json_integer_value(json_object_get(line, "step")) == w->step;
    if (same && json_is_object(attention)) w->found = json_incref(attention);
    return !w->found;
}

void api_v1_run_attention(struct call *c)
{
    char path[RUN_PATH_MAX];
    struct wanted_attention w = {.step = query_number(c, "step", -2)};
    if (w.step == -2) reply_error(c, 400, "step is missing");
    if (w.step < 0 || !find_file(c, "samples.jsonl", path)) return;
    each_object(path, find_attention, &w);
    if (w.found) {
        reply_json(c, 200, w.found);
    } else {
        reply_error(c, 404, "Run %s has no attention of step %lld", c->route_name, w.step);
    }
}

/* ---- GET /v1/runs/NAME/events ---- */

static void watcher_free(struct call *c)
{
    struct watcher *w = c->state;
    if (!w) return;
    pthread_mutex_lock(&w->runs->lock);
    *(w->before ? &w->before->next : &w->runs->first) = w->next;
    if (w->next) w->next->before = w->before;
    pthread_mutex_unlock(&w->runs->lock);
    free(w);
}

/* Bytes of the log; -1: there is none. */
static long long log_size(const struct watcher *w)
{
    struct stat found;
    return stat(w->log, &found) == 0 ? (long long)found.st_size : -1;
}

static bool has_grown(const struct watcher *w)
{
    long long size = log_size(w);
    return size >= 0 && size != w->seen;
}

/* Adds what is new, or, where there is nothing but part of a line, a comment that shows that the
 * stream lives. */
static void add_log(struct call *c, struct watcher *w)
{
    long long size = log_size(w);
    json_t *news = size == w->at ? NULL : log_since(w->log, place_in(w->log, w->at));
    json_int_t next = json_integer_value(json_object_get(news, "next"));
    if (news && next != w->at) {
        w->seen = w->at = next; /* there may be more than was read at once */
        stream_event(&c->out, "log", news);
    } else {
        w->seen = size;
        json_decref(news);
        buffer_text(&c->out, ": waiting\n\n");
    }
}

static enum stream_step next_event(struct call *c)
{
    struct watcher *w = c->state;
    pthread_mutex_lock(&w->runs->lock);
    bool end = w->end, due = w->woken || has_grown(w);
    if (!end && !due) {
        w->asleep = true;
        c->suspend(c);
    }
    w->woken = false;
    pthread_mutex_unlock(&w->runs->lock);
    if (end) return STREAM_END;
    if (!due) return STREAM_WAIT;
    add_log(c, w);
    return STREAM_MORE;
}

void runs_tick(struct runs *r, bool end)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    for (struct watcher *w = r->first; w; w = w->next) {
        w->end = end || w->call->gone;
        w->quiet++;
        if (!w->end && !has_grown(w) && w->quiet < ALIVE_TICKS) continue;
        w->quiet = 0;
        w->woken = true;
        if (w->asleep) w->call->wake(w->call);
        w->asleep = false;
    }
    pthread_mutex_unlock(&r->lock);
}

void api_v1_run_events(struct call *c)
{
    struct runs *r = c->server->runs;
    struct watcher *w = calloc(1, sizeof *w);
    long long after = query_number(c, "after", 0);
    if (!w) reply_error(c, 503, "out of memory for a stream");
    if (!w || after < 0 || !find_file(c, "log.jsonl", w->log)) {
        free(w);
        return;
    }
    w->runs = r;
    w->call = c;
    w->seen = w->at = after;
    pthread_mutex_lock(&r->lock);
    w->next = r->first;
    if (w->next) w->next->before = w;
    r->first = w;
    pthread_mutex_unlock(&r->lock);
    c->state = w;
    c->forget = watcher_free;
    stream_begin(c, next_event);
}
