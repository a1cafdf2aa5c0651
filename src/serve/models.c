/*
 * models.c - the models that are served; see models.h.
 */
#include "serve/models.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "serve/languages.h"

/* What tells one state of a directory from another. */
struct stamp {
    struct {
        dev_t device;
        ino_t inode;
        off_t size;
        struct timespec changed;
    } file[3];
};

/* A model by its name; what is loaded for it changes over time. */
struct slot {
    char *name, *dir;
    struct model *model;       /* guarded by the lock of the models */
    struct stamp loaded, seen; /* the files that were loaded; as they were last seen */
    bool loading, due;         /* a thread loads it; it has to be loaded */
    pthread_t thread;          /* that loads it */
    atomic_bool finished;      /* that thread is done */
    struct model *fresh;       /* what it has loaded; NULL: it could not */
    struct heed_error err;
    struct models *models;
};

struct models {
    struct models_options o;
    struct heed_engine *engine;
    pthread_mutex_t lock;
    struct slot **slot; /* [n] */
    int n;
    struct model *retired; /* used by requests still, no longer by the list */
    int loaded, failed;
};

/* ---- one model ---- */

static void model_free(struct model *m)
{
    if (!m) return;
    for (int i = 0; i < m->workers; i++) worker_close(m->worker[i]);
    free(m->worker);
    heed_model_free(m->heed);
    free(m->name);
    free(m->dir);
    free(m);
}

void model_release(struct model *model)
{
    if (model) atomic_fetch_sub(&model->users, 1);
}

struct worker *model_worker(const struct model *model)
{
    struct worker *best = NULL;
    int least = 0;
    for (int i = 0; i < model->workers; i++) {
        int lines = worker_count(model->worker[i]).lines_waiting;
        if (best && lines >= least) continue;
        best = model->worker[i];
        least = lines;
    }
    return best;
}

struct worker_counts model_count(const struct model *model)
{
    struct worker_counts sum = {0};
    for (int i = 0; i < model->workers; i++) {
        struct worker_counts one = worker_count(model->worker[i]);
        sum.lines += one.lines;
        sum.tokens += one.tokens;
        sum.tasks += one.tasks;
        sum.lines_waiting += one.lines_waiting;
    }
    return sum;
}

static bool open_workers(struct model *m, const struct models_options *o, struct heed_error *err)
{
    m->worker = calloc((size_t)o->workers, sizeof *m->worker);
    for (; m->worker && m->workers < o->workers; m->workers++) {
        m->worker[m->workers] = worker_open(m->heed, &o->worker, err);
        if (!m->worker[m->workers]) return false;
    }
    return m->worker;
}

static void find_languages(struct model *m)
{
    m->languages = heed_model_languages(m->heed, &m->language);
    if (m->languages || !language_pair(m->name, m->from, m->to)) return;
    m->pair[0] = m->from;
    m->pair[1] = m->to;
    m->language = m->pair;
    m->languages = 2;
}

static struct model *model_load(struct models *all, const char *name, const char *dir,
                                struct heed_error *err)
{
    struct model *m = calloc(1, sizeof *m);
    *err = (struct heed_error){HEED_ENOMEM, "out of memory for a model"};
    if (!m) return NULL;
    m->name = strdup(name);
    m->dir = strdup(dir);
    if (m->name && m->dir) {
        m->heed = heed_model_load(all->engine, dir, HEED_WEIGHTS_AS_STORED, err);
    }
    if (!m->heed || !open_workers(m, &all->o, err)) {
        model_free(m);
        return NULL;
    }
    find_languages(m);
    m->users = 1;
    return m;
}

const char *model_source(const struct model *model, const char *written)
{
    if (model->from[0]) return language_same(written, model->from) ? model->from : NULL;
    for (int i = 0; i < model->languages; i++) {
        if (language_same(written, model->language[i])) return model->language[i];
    }
    return NULL;
}

const char *model_target(const struct model *model, const char *written)
{
    if (model->to[0]) return language_same(written, model->to) ? model->to : NULL;
    return model_source(model, written);
}

/* ---- threads that end ---- */

/* Runs f in a thread of its own and waits for it. A thread that computes keeps a team of OpenMP
 * threads until it ends. Where there are more threads in teams than cores, libgomp puts threads
 * that wait to sleep at once, and waking them hundreds of times doubles the time of a translation.
 * So only the threads of the workers, which compute all the time, may keep a team. */
static void run_apart(void *(*f)(void *), void *arg)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, f, arg) == 0)
        pthread_join(thread, NULL);
    else
        f(arg);
}

/* ---- directories ---- */

static struct stamp stamp_of(const char *dir)
{
    static const char *const name[] = {"config.json", "model.safetensors", "vocab.model"};
    struct stamp s;
    memset(&s, 0, sizeof s); /* stamps are compared as bytes */
    for (int i = 0; i < 3; i++) {
        char path[4096];
        struct stat found;
        int n = snprintf(path, sizeof path, "%s/%s", dir, name[i]);
        if (n < 0 || n >= (int)sizeof path || stat(path, &found) != 0) continue;
        s.file[i].device = found.st_dev;
        s.file[i].inode = found.st_ino;
        s.file[i].size = found.st_size;
        s.file[i].changed = found.st_mtim;
    }
    return s;
}

static bool same(const struct stamp *a, const struct stamp *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static void *load(void *arg)
{
    struct slot *s = arg;
    s->fresh = model_load(s->models, s->name, s->dir, &s->err);
    s->finished = true;
    return NULL;
}

static __attribute__((format(printf, 2, 3))) void say(struct models *m, const char *format, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (m->o.say) m->o.say(m->o.user, text);
}

static void begin_load(struct models *m, struct slot *s)
{
    s->due = false;
    s->finished = false;
    s->loaded = s->seen;
    s->loading = pthread_create(&s->thread, NULL, load, s) == 0;
    if (!s->loading) say(m, "model %s could not be loaded anew: cannot start a thread", s->name);
}

static void end_load(struct models *m, struct slot *s)
{
    pthread_join(s->thread, NULL);
    s->loading = false;
    if (!s->fresh) {
        pthread_mutex_lock(&m->lock);
        m->failed++;
        pthread_mutex_unlock(&m->lock);
        say(m, "model %s stays as it is: %s", s->name, s->err.text);
        return;
    }
    pthread_mutex_lock(&m->lock);
    struct model *old = s->model;
    s->model = s->fresh;
    s->fresh = NULL;
    old->next = m->retired;
    m->retired = old;
    m->loaded++;
    pthread_mutex_unlock(&m->lock);
    model_release(old);
    say(m, "model %s was loaded anew from %s", s->name, s->dir);
}

static void free_retired(struct models *m)
{
    for (struct model **p = &m->retired; *p;) {
        struct model *old = *p;
        if (old->users > 0) {
            p = &old->next;
            continue;
        }
        *p = old->next;
        model_free(old);
    }
}

void models_tick(struct models *m)
{
    for (int i = 0; i < m->n; i++) {
        struct slot *s = m->slot[i];
        if (s->loading && s->finished) end_load(m, s);
        struct stamp now = stamp_of(s->dir);
        /* a directory that is being written changes between two looks */
        bool settled = same(&now, &s->seen);
        s->seen = now;
        if (!s->loading && settled && (s->due || !same(&now, &s->loaded))) begin_load(m, s);
    }
    free_retired(m);
}

void models_reload(struct models *m)
{
    for (int i = 0; i < m->n; i++) m->slot[i]->due = true;
}

/* ---- all models ---- */

struct opening {
    struct models *models;
    struct heed_error *err;
};

static void *open_engine(void *arg)
{
    struct opening *x = arg;
    struct models *m = x->models;
    m->engine = heed_engine_open(m->o.device, m->o.threads, x->err);
    return NULL;
}

struct models *models_open(const struct models_options *o, struct heed_error *err)
{
    struct models *m = calloc(1, sizeof *m);
    *err = (struct heed_error){HEED_ENOMEM, "out of memory for models"};
    if (!m) return NULL;
    m->o = *o;
    pthread_mutex_init(&m->lock, NULL);
    run_apart(open_engine, &(struct opening){m, err});
    if (m->engine) return m;
    models_close(m);
    return NULL;
}

static void slot_free(struct slot *s)
{
    if (!s) return;
    if (s->loading) pthread_join(s->thread, NULL);
    model_free(s->fresh);
    model_free(s->model);
    free(s->name);
    free(s->dir);
    free(s);
}

void models_close(struct models *m)
{
    if (!m) return;
    for (int i = 0; i < m->n; i++) slot_free(m->slot[i]);
    while (m->retired) {
        struct model *old = m->retired;
        m->retired = old->next;
        model_free(old);
    }
    free(m->slot);
    heed_engine_free(m->engine);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* The last part of a path, which may end in slashes. */
static char *own_name(const char *dir)
{
    size_t end = strlen(dir);
    while (end > 1 && dir[end - 1] == '/') end--;
    size_t at = end;
    while (at > 0 && dir[at - 1] != '/') at--;
    return strndup(dir + at, end - at);
}

static struct slot *slot_new(struct models *m, const char *what)
{
    struct slot *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    const char *equals = strchr(what, '=');
    bool named = equals && equals > what && !memchr(what, '/', (size_t)(equals - what));
    s->models = m;
    s->name = named ? strndup(what, (size_t)(equals - what)) : own_name(what);
    s->dir = strdup(named ? equals + 1 : what);
    if (s->name && s->dir) return s;
    slot_free(s);
    return NULL;
}

enum heed_status models_add(struct models *m, const char *what, struct heed_error *err)
{
    struct slot *s = slot_new(m, what), **grown = NULL;
    if (s) grown = realloc(m->slot, (size_t)(m->n + 1) * sizeof *grown);
    if (grown) m->slot = grown;
    *err = (struct heed_error){HEED_ENOMEM, "out of memory for a model"};
    if (grown) {
        s->loaded = s->seen = stamp_of(s->dir);
        run_apart(load, s);
        s->model = s->fresh;
        s->fresh = NULL;
        *err = s->err;
    }
    if (grown && s->model) {
        m->slot[m->n++] = s;
        return HEED_OK;
    }
    slot_free(s);
    return err->status;
}

struct model *models_at(struct models *m, int i)
{
    struct model *found = NULL;
    if (!m) return NULL;
    pthread_mutex_lock(&m->lock);
    if (i < m->n) found = m->slot[i]->model;
    if (found) atomic_fetch_add(&found->users, 1);
    pthread_mutex_unlock(&m->lock);
    return found;
}

struct model *models_pick(struct models *m, const char *name, const char *from, const char *to)
{
    struct model *x;
    for (int i = 0; (x = models_at(m, i)); i++) {
        bool fits =
            name ? !strcmp(x->name, name) : model_target(x, to) && (!from || model_source(x, from));
        if (fits) return x;
        model_release(x);
    }
    return NULL;
}

void models_loads(struct models *m, int *loaded, int *failed)
{
    pthread_mutex_lock(&m->lock);
    *loaded = m->loaded;
    *failed = m->failed;
    pthread_mutex_unlock(&m->lock);
}
