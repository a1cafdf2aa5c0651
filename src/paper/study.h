/*
 * study.h - an experiment of the paper as rows that are computed once each and kept as files.
 *
 * study.c opens the directory, takes rows that no other process is at, and keeps their results;
 * each experiment has a file that lists its rows, computes one of them and writes the report.
 */
#ifndef HEED_PAPER_STUDY_H
#define HEED_PAPER_STUDY_H
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/file.h"
#include "heed.h"

enum { ROW_NAME = 32, ROW_TEXT = 256, ROWS_MAX = 64 };

struct row {
    char name[ROW_NAME];
    char about[ROW_TEXT];
    char options[ROW_TEXT]; /* of a training: what it changes, as `heed train` takes it */
    int number;             /* what the experiment makes of it */
    json_t *result;         /* the object in its file; NULL: not finished, or not read yet */
};

/* The numbers of an experiment are JSON objects: an object for each row, which `compute` fills and
 * `report` reads back. */
struct experiment {
    const char *name, *title;
    bool trains;
    /* Adds the rows with study_add_row. */
    enum heed_status (*plan)(struct heed_study *s, struct heed_error *err);
    /* Adds the options that rows depend on, besides device and seed; NULL: none. */
    enum heed_status (*settings)(struct heed_study *s, json_t *settings, struct heed_error *err);
    /* Fills `result`, which is empty. Where study_stopping says so it returns early, with *done
     * false. */
    enum heed_status (*compute)(struct heed_study *s, const struct row *r, json_t *result,
                                bool *done, struct heed_error *err);
    /* After the result is on disk: removes what is not needed any more. NULL: nothing to do. */
    enum heed_status (*finish)(struct heed_study *s, const struct row *r, struct heed_error *err);
    /* Writes the text of the report below its head, and pictures by report_picture. */
    enum heed_status (*report)(struct heed_study *s, FILE *md, struct heed_error *err);
};

extern const struct experiment table1_experiment, scaling_experiment, schedule_experiment,
    table2_experiment, table3_experiment, length_experiment;

struct heed_study {
    struct heed_study_options o;
    struct heed_engine *engine;
    const struct experiment *x;
    struct row row[ROWS_MAX];
    int rows;
    json_t *settings; /* the object in study.json */
    double deadline;  /* seconds of the monotonic clock; 0: none */
    atomic_bool stop;
};

/* Whether heed_study_stop was called or the time is over. */
bool study_stopping(const struct heed_study *s);
enum heed_status study_add_row(struct heed_study *s, int number, const char *name,
                               struct heed_error *err, const char *about, ...)
    __attribute__((format(printf, 5, 6)));
/* "DIR/runs/NAME", where the row keeps files while it is computed. */
enum heed_status study_run_dir(const struct heed_study *s, const struct row *r,
                               char path[FILE_PATH_MAX], struct heed_error *err);
/* Tells the caller; training and text may be NULL. */
void study_tell(struct heed_study *s, const struct row *r, const struct heed_event *training,
                const char *text);
/* Locks the directory of the study for a moment, waiting for other processes. */
enum heed_status study_lock(const struct heed_study *s, int *fd, struct heed_error *err);

/* ---- results ---- */

/* A number of a result, or of an object in it; NaN where there is none. */
double result_number(const json_t *result, const char *key);
/* Sets a number; what is not finite becomes null. */
void result_set(json_t *result, const char *key, double x);

#endif
