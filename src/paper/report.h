/*
 * report.h - report.md of a study and the pictures beside it.
 */
#ifndef HEED_PAPER_REPORT_H
#define HEED_PAPER_REPORT_H
#include "paper/study.h"
#include "view/bars.h"
#include "view/curves.h"

/* Writes report.md: the head, which all studies share, and what the experiment has to say. */
enum heed_status report_write(struct heed_study *s, struct heed_error *err);

/* ---- for experiments ---- */

/* Draw panels (see curves_picture), or bars, into a file of the study and put the picture into the
 * text. The note of the bars is set here. */
enum heed_status report_curves(struct heed_study *s, FILE *md, const char *file,
                               const struct curves *panel, int n, const char *heading,
                               struct heed_error *err);
enum heed_status report_bars(struct heed_study *s, FILE *md, const char *file,
                             const struct bars *bars, struct heed_error *err);
/* The beginning of a cell of a table and a number with so many decimals, or a dash where it is not
 * a number: "| 25.83 ". */
void report_cell(FILE *md, double x, int decimals);
/* "65,012,345" */
enum { REPORT_COUNT = 32 };
const char *report_count(char out[REPORT_COUNT], double n);

#endif
