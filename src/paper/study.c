/*
 * study.c - the directory of a study: its options, its rows, who computes which; see study.h.
 *
 * A row is locked by its directory in runs/ while a process computes it, and is finished once its
 * file in rows/ exists, which is written in one piece. So a process that is killed leaves a row
 * either as it was or finished, and several processes share the rows without knowing each other.
 */
#include "paper/study.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/locale.h"
#include "ops/engine.h"
#include "paper/report.h"
#include "paper/training.h"

static const struct experiment *const EXPERIMENT[] = {
    &table1_experiment,  &table2_experiment, &table3_experiment,
    &scaling_experiment, &length_experiment, &schedule_experiment,
};
enum { EXPERIMENTS = sizeof EXPERIMENT / sizeof *EXPERIMENT, FILE_MOST = 16 << 20 };

/* ---- small things ---- */

bool study_stopping(const struct heed_study *s)
{
    return atomic_load(&s->stop) || (s->deadline > 0 && clock_now() >= s->deadline);
}

void heed_study_stop(struct heed_study *s)
{
    if (s) atomic_store(&s->stop, true);
}

double result_number(const json_t *result, const char *key)
{
    const json_t *x = json_object_get(result, key);
    return json_is_number(x) ? json_number_value(x) : NAN;
}

void result_set(json_t *result, const char *key, double x)
{
    json_object_set_new(result, key, isfinite(x) ? json_real(x) : json_null());
}

enum heed_status study_add_row(struct heed_study *s, int number, const char *name,
                               struct heed_error *err, const char *about, ...)
{
    if (s->rows == ROWS_MAX)
        return error_set(err, HEED_EARG, "%s has more than %d rows", s->x->name, ROWS_MAX);
    struct row *r = &s->row[s->rows++];
    *r = (struct row){.number = number};
    snprintf(r->name, sizeof r->name, "%s", name);
    va_list ap;
    va_start(ap, about);
    vsnprintf(r->about, sizeof r->about, about, ap);
    va_end(ap);
    return HEED_OK;
}

static bool wanted(const struct heed_study *s, const struct row *r)
{
    for (int i = 0; i < s->o.rows_n; i++)
        if (strcmp(s->o.rows[i], r->name) == 0) return true;
    return s->o.rows_n == 0;
}

void study_tell(struct heed_study *s, const struct row *r, const struct heed_event *training,
                const char *text)
{
    struct heed_study_event e = {.row = r ? r->name : NULL, .training = training, .text = text};
    for (int i = 0; i < s->rows; i++) {
        if (!wanted(s, &s->row[i])) continue;
        e.rows++;
        e.finished += s->row[i].result != NULL;
    }
    if (s->o.event) s->o.event(s->o.user, &e);
}

/* ---- files ---- */

/* "DIR/FOLDER/NAME" and an ending */
static enum heed_status path_of(const struct heed_study *s, const char *folder, const char *name,
                                const char *ending, char path[FILE_PATH_MAX],
                                struct heed_error *err)
{
    char inside[2 * ROW_NAME + 16];
    snprintf(inside, sizeof inside, "%s/%s%s", folder, name, ending);
    return file_join(path, FILE_PATH_MAX, s->o.out, inside, err);
}

enum heed_status study_run_dir(const struct heed_study *s, const struct row *r,
                               char path[FILE_PATH_MAX], struct heed_error *err)
{
    return path_of(s, "runs", r->name, "", path, err);
}

static enum heed_status object_read(const char *path, json_t **out, struct heed_error *err)
{
    char *text;
    size_t len;
    json_error_t why;
    enum heed_status st = file_read(path, FILE_MOST, &text, &len, err);
    if (st) return st;
    json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (!json_is_object(j)) {
        json_decref(j);
        return error_set(err, HEED_EFORMAT, "%s is not a JSON object: %s", path,
                         j ? "something else" : why.text);
    }
    *out = j;
    return HEED_OK;
}

static enum heed_status object_write(const char *path, const json_t *j, struct heed_error *err)
{
    char *text = json_dumps(j, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    if (!text) return error_memory(err, 1024, path);
    struct file_part part[] = {{text, strlen(text)}, {"\n", 1}};
    enum heed_status st = file_write(path, part, 2, err);
    free(text);
    return st;
}

/* Unlike file_lock_dir this waits, because locks on the whole study are short; making a vocabulary
 * is the longest. Where the study is to stop, it waits a little only. */
enum heed_status study_lock(const struct heed_study *s, int *fd, struct heed_error *err)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    const double patience = 600, patience_stopping = 5; /* seconds */
    double began = clock_now();
    int lock = open(s->o.out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0) return error_errno(err, "cannot open directory %s", s->o.out);
    while (flock(lock, LOCK_EX | LOCK_NB) != 0) {
        double limit = atomic_load(&s->stop) ? patience_stopping : patience;
        if ((errno != EWOULDBLOCK && errno != EINTR) || clock_now() > began + limit) {
            enum heed_status st = error_errno(err, "cannot lock directory %s", s->o.out);
            close(lock);
            return st;
        }
        nanosleep(&pause, NULL);
    }
    *fd = lock;
    return HEED_OK;
}

/* Reads the results of rows that were finished since, by this process or another. */
static enum heed_status read_results(struct heed_study *s, struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    enum heed_status st = HEED_OK;
    for (int i = 0; i < s->rows && !st; i++) {
        struct row *r = &s->row[i];
        if (r->result) continue;
        st = path_of(s, "rows", r->name, ".json", path, err);
        if (!st && file_exists(path)) st = object_read(path, &r->result, err);
    }
    return st;
}

/* ---- open ---- */

static enum heed_status find_experiment(struct heed_study *s, struct heed_error *err)
{
    const char *name = s->o.name, *guess = NULL;
    char all[256] = "";
    for (int i = 0; i < EXPERIMENTS; i++) {
        const char *known = EXPERIMENT[i]->name;
        if (strcmp(known, name) == 0) s->x = EXPERIMENT[i];
        guess = heed_nearer(name, guess, known);
        size_t n = strlen(all);
        snprintf(all + n, sizeof all - n, "%s%s", i ? i + 1 < EXPERIMENTS ? ", " : " or " : "",
                 known);
    }
    if (s->x) return HEED_OK;
    if (guess)
        return error_set(err, HEED_EARG, "there is no study \"%s\"; did you mean %s?", name, guess);
    return error_set(err, HEED_EARG, "there is no study \"%s\"; expected %s", name, all);
}

static struct row *find_row(struct heed_study *s, const char *name)
{
    for (int i = 0; i < s->rows; i++)
        if (strcmp(s->row[i].name, name) == 0) return &s->row[i];
    return NULL;
}

static enum heed_status check_rows(struct heed_study *s, struct heed_error *err)
{
    for (int i = 0; i < s->o.rows_n; i++) {
        const char *name = s->o.rows[i], *guess = NULL;
        if (find_row(s, name)) continue;
        for (int k = 0; k < s->rows; k++) guess = heed_nearer(name, guess, s->row[k].name);
        if (guess)
            return error_set(err, HEED_EARG, "%s has no row \"%s\"; did you mean %s?", s->x->name,
                             name, guess);
        return error_set(err, HEED_EARG, "%s has no row \"%s\"; --list prints its rows", s->x->name,
                         name);
    }
    return HEED_OK;
}

static enum heed_status make_settings(struct heed_study *s, struct heed_error *err)
{
    s->settings =
        json_pack("{ss ss ss sI}", "study", s->x->name, "command", s->o.command ? s->o.command : "",
                  "device", s->engine->device, "seed", (json_int_t)s->o.seed);
    if (!s->settings) return error_memory(err, 1024, "a study");
    return s->x->settings ? s->x->settings(s, s->settings, err) : HEED_OK;
}

/* The options of the study in the directory must be those that are given: rows that were computed
 * with others do not compare. */
static enum heed_status compare_settings(const struct heed_study *s, const json_t *begun,
                                         struct heed_error *err)
{
    const char *key;
    json_t *given;
    json_object_foreach (s->settings, key, given) {
        const json_t *x = json_object_get(begun, key);
        if (strcmp(key, "command") == 0 || json_equal(x, given)) continue;
        char *was = json_dumps(x, JSON_ENCODE_ANY), *is = json_dumps(given, JSON_ENCODE_ANY);
        enum heed_status st = error_set(err, HEED_EARG,
                                        "%s was begun with %s %s, found %s: a study keeps its "
                                        "options; choose another directory",
                                        s->o.out, key, was ? was : "absent", is ? is : "absent");
        free(was);
        free(is);
        return st;
    }
    return HEED_OK;
}

/* Makes the directory, or checks that it holds this study. The command that began it stays. */
static enum heed_status open_directory(struct heed_study *s, struct heed_error *err)
{
    char file[FILE_PATH_MAX], rows[FILE_PATH_MAX], runs[FILE_PATH_MAX];
    int lock = -1;
    enum heed_status st = file_join(file, sizeof file, s->o.out, "study.json", err);
    if (!st) st = file_join(rows, sizeof rows, s->o.out, "rows", err);
    if (!st) st = file_join(runs, sizeof runs, s->o.out, "runs", err);
    if (!st) st = file_mkdir(s->o.out, err);
    if (!st) st = study_lock(s, &lock, err);
    if (st) return st;
    if (file_exists(file)) {
        json_t *begun = NULL;
        st = object_read(file, &begun, err);
        if (!st) st = compare_settings(s, begun, err);
        if (!st) {
            json_decref(s->settings);
            s->settings = json_incref(begun);
        }
        json_decref(begun);
    } else {
        st = object_write(file, s->settings, err);
    }
    if (!st) st = file_mkdir(rows, err);
    if (!st) st = file_mkdir(runs, err);
    close(lock);
    return st;
}

struct heed_study_options heed_study_defaults(void)
{
    return (struct heed_study_options){.train = heed_train_defaults(),
                                       .seed = 1,
                                       .vocab_size = 8000,
                                       .longest = 2048,
                                       .widest = 512};
}

struct heed_study *heed_study_open(struct heed_engine *e, const struct heed_study_options *o,
                                   struct heed_error *err)
{
    if (!e || !o || !o->name || !o->out) {
        error_null(err, !e ? "engine" : !o ? "options" : !o->name ? "name" : "out");
        return NULL;
    }
    struct heed_study *s = calloc(1, sizeof *s);
    if (!s) {
        error_memory(err, sizeof *s, "a study");
        return NULL;
    }
    s->o = *o;
    s->engine = e;
    atomic_init(&s->stop, false);
    struct c_locale locale = c_locale_enter(); /* options of rows and settings are numbers */
    enum heed_status st = error_strings(err, "rows", o->rows, o->rows_n);
    if (!st) st = find_experiment(s, err);
    if (!st && s->x->trains) st = training_check_text(s, err);
    if (!st) st = s->x->plan(s, err);
    if (!st) st = check_rows(s, err);
    if (!st) st = make_settings(s, err);
    if (!st) st = open_directory(s, err);
    if (!st) st = read_results(s, err);
    c_locale_leave(locale);
    if (st) {
        heed_study_free(s);
        return NULL;
    }
    return s;
}

void heed_study_free(struct heed_study *s)
{
    if (!s) return;
    for (int i = 0; i < s->rows; i++) json_decref(s->row[i].result);
    json_decref(s->settings);
    free(s);
}

/* ---- rows ---- */

bool heed_study_row(struct heed_study *s, int i, struct heed_row *out)
{
    char path[FILE_PATH_MAX];
    int lock;
    if (!s || !out || i < 0 || i >= s->rows || read_results(s, NULL)) return false;
    const struct row *r = &s->row[i];
    *out = (struct heed_row){.name = r->name, .about = r->about, .state = HEED_ROW_WAITING};
    if (r->result) {
        out->state = HEED_ROW_FINISHED;
    } else if (!study_run_dir(s, r, path, NULL) && file_exists(path)) {
        bool free = file_lock_dir(path, &lock, NULL) == HEED_OK;
        if (free) close(lock);
        out->state = free ? HEED_ROW_BEGUN : HEED_ROW_RUNNING;
    }
    return true;
}

static enum heed_status compute(struct heed_study *s, struct row *r, struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    bool done = false;
    json_t *result = json_object();
    if (!result) return error_memory(err, 256, "a row");
    enum heed_status st = path_of(s, "rows", r->name, ".json", path, err);
    json_object_set_new(result, "row", json_string(r->name));
    if (!st) st = s->x->compute(s, r, result, &done, err);
    if (!st && done) st = object_write(path, result, err);
    if (!st && done) r->result = json_incref(result);
    if (!st && done && s->x->finish) st = s->x->finish(s, r, err);
    json_decref(result);
    return st;
}

/* Computes a row unless another process is at it or has finished it. *taken: it was computed here,
 * to its end or until the time was over. */
static enum heed_status take(struct heed_study *s, struct row *r, bool *taken,
                             struct heed_error *err)
{
    char dir[FILE_PATH_MAX];
    int lock;
    *taken = false;
    enum heed_status st = study_run_dir(s, r, dir, err);
    if (!st) st = file_mkdir(dir, err);
    if (st) return st;
    if (file_lock_dir(dir, &lock, NULL)) return HEED_OK;
    st = read_results(s, err);
    if (!st && !r->result) {
        *taken = true;
        study_tell(s, r, NULL, r->about);
        st = compute(s, r, err);
        if (!s->x->trains) rmdir(dir);
        if (!st && r->result) study_tell(s, r, NULL, NULL);
    }
    close(lock);
    return st;
}

/* One pass over the rows. *more: a row was computed, and another pass may find rows that were
 * locked in this one. A row that this machine cannot compute is left out. */
static enum heed_status pass(struct heed_study *s, bool *more, struct heed_error *first)
{
    struct heed_error err = {0};
    *more = false;
    for (int i = 0; i < s->rows && !study_stopping(s); i++) {
        struct row *r = &s->row[i];
        bool taken = false;
        if (r->result || !wanted(s, r)) continue;
        enum heed_status st = take(s, r, &taken, &err);
        *more = *more || (taken && r->result);
        if (!st) continue;
        if (!first->status) error_set(first, st, "row %s: %s", r->name, err.text);
        if (st != HEED_EARG && st != HEED_EUNSUPPORTED && st != HEED_ENOMEM) return st;
    }
    return HEED_OK;
}

enum heed_status heed_study_run(struct heed_study *s, struct heed_error *err)
{
    if (!s) return error_null(err, "study");
    struct heed_error first = {0};
    bool more = true;
    s->deadline = s->o.minutes > 0 ? clock_now() + s->o.minutes * 60 : 0;
    enum heed_status st = HEED_OK;
    while (!st && more && !study_stopping(s) && !first.status) st = pass(s, &more, &first);
    st = heed_study_report(s, err);
    if (!first.status) return st;
    return error_set(err, first.status, "%s", first.text);
}

enum heed_status heed_study_report(struct heed_study *s, struct heed_error *err)
{
    if (!s) return error_null(err, "study");
    int lock;
    enum heed_status st = study_lock(s, &lock, err);
    if (st) return st;
    st = read_results(s, err);
    if (!st) st = report_write(s, err);
    close(lock);
    return st;
}
