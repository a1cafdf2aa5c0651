/*
 * attention.h - what the pictures of attention share: weights, labels and titles. Each drawing is a
 * file of its own, and attention.c chooses among them.
 */
#ifndef HEED_VIEW_ATTENTION_H
#define HEED_VIEW_ATTENTION_H
#include <stdio.h>

#include "heed.h"

/* The weight of one cell in one head, or its mean over the heads where head is -1. */
float attention_weight(const struct heed_attention_map *m, int layer, int head, int query, int key);

/* A token without the U+2581 at its front, which vocabularies write for a space; a token that is
 * only U+2581 stays as it is. */
const char *attention_label(const char *piece);

/* "cross-attention", "self-attention of the encoder", ... */
const char *attention_use_name(enum heed_attention_use use);
/* What the queries and the keys are: "translation", "source". */
const char *attention_query_side(enum heed_attention_use use);
const char *attention_key_side(enum heed_attention_use use);

enum { ATTENTION_TITLE = 160 };
/* "cross-attention, layer 5 of 6, mean of 6 heads". */
void attention_title(char out[ATTENTION_TITLE], const struct heed_attention *a,
                     const struct heed_attention_view *v);

/* The drawings. The view is checked before. */
enum heed_status attention_svg_map(const struct heed_attention *a,
                                   const struct heed_attention_view *v, char **out,
                                   struct heed_error *err);
enum heed_status attention_svg_lines(const struct heed_attention *a,
                                     const struct heed_attention_view *v, char **out,
                                     struct heed_error *err);
enum heed_status attention_svg_grid(const struct heed_attention *a,
                                    const struct heed_attention_view *v, char **out,
                                    struct heed_error *err);
void attention_terminal(FILE *f, const struct heed_attention *a,
                        const struct heed_attention_view *v);
void attention_json(FILE *f, const struct heed_attention *a);
/* The data of the page: weights in thousandths, and the view it begins with. */
void attention_json_view(FILE *f, const struct heed_attention *a,
                         const struct heed_attention_view *v);
void attention_page(FILE *f, const struct heed_attention *a, const struct heed_attention_view *v);

#endif
