/*
 * config.h - the shape of the model: checks, config.json. The table of its fields is in heed.h.
 */
#ifndef HEED_MODEL_CONFIG_H
#define HEED_MODEL_CONFIG_H
#include "heed.h"
#include "ops/ops.h"

enum { LAYERS_MAX = 128 }; /* of each stack */

/* One sentence for the first thing that makes no sense: sizes below 1 or absurd, d_model odd, heads
 * that do not divide, heads too wide, rates outside [0, 1). */
enum heed_status config_check(const struct heed_config *c, struct heed_error *err);
/* The value of a field as heed_config_set reads it; the number of a kind that has no name. */
enum { CONFIG_VALUE = 64 }; /* bytes of a value as text */
const char *config_show(char out[CONFIG_VALUE], const struct heed_config *c,
                        const struct heed_config_field *f);
/* HEED_EARG: `CALLED "NAME" is unknown`, with the nearest name of a field. */
enum heed_status config_unknown_field(const char *name, const char *called, struct heed_error *err);
/* NUL-terminated JSON, malloced; NULL when out of memory. */
char *config_format(const struct heed_config *c);
/* path is what an error calls the text. The result has been checked. */
enum heed_status config_parse(struct heed_config *c, const char *json, size_t len, const char *path,
                              struct heed_error *err);
enum heed_status config_load(struct heed_config *c, const char *path, struct heed_error *err);
/* Heads of keys and values, and widths of a head, where 0 in the configuration has been replaced by
 * what it stands for. */
static inline int config_kv_heads(const struct heed_config *c)
{
    return c->kv_heads ? c->kv_heads : c->heads;
}
static inline int config_d_k(const struct heed_config *c)
{
    return c->d_k ? c->d_k : c->d_model / c->heads;
}
static inline int config_d_v(const struct heed_config *c)
{
    return c->d_v ? c->d_v : c->d_model / c->heads;
}
/* Columns of keys and values of one position, side by side: KV * (dk + dv). */
static inline int config_kv_width(const struct heed_config *c)
{
    return config_kv_heads(c) * (config_d_k(c) + config_d_v(c));
}
static inline bool config_linear(const struct heed_config *c)
{
    return c->attention == HEED_ATTENTION_LINEAR;
}
/* Numbers of a state of linear attention: see ops.h. */
static inline int config_state_width(const struct heed_config *c)
{
    return config_kv_heads(c) * config_d_k(c) * (config_d_v(c) + 1);
}
/* Columns of queries, keys and values side by side. */
static inline int config_qkv_width(const struct heed_config *c)
{
    return c->heads * config_d_k(c) + config_kv_width(c);
}
/* Experts of a layer, and how many of them a token is sent to; with ff dense 0 experts. */
static inline int config_experts(const struct heed_config *c)
{
    return c->ff != HEED_FF_MOE ? 0 : c->experts ? c->experts : 8;
}
static inline int config_experts_per_token(const struct heed_config *c)
{
    return c->experts_per_token ? c->experts_per_token : 2;
}
/* What the first linear of the feed-forward does to its product; the identity where a gate
 * follows it (feed_forward_gated). */
enum activation_kind config_activation(const struct heed_config *c);
/* The name of the feed-forward's activation in config.json. */
const char *config_activation_name(const struct heed_config *c);
/* HEED_EFORMAT naming the first field in which found differs from expected. */
enum heed_status config_same(const struct heed_config *found, const struct heed_config *expected,
                             const char *path, struct heed_error *err);

#endif
