/*
 * table1.h - what table1.c measures and table1_report.c writes.
 */
#ifndef HEED_PAPER_TABLE1_H
#define HEED_PAPER_TABLE1_H
#include "paper/layers.h"
#include "paper/study.h"

enum { TABLE1_LEAST_LENGTH = 16, TABLE1_WINDOW = 32 };

extern const char *const table1_kind[LAYER_KINDS];

enum heed_status table1_report(struct heed_study *s, FILE *md, struct heed_error *err);

#endif
