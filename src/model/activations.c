/*
 * activations.c - see activations.h.
 */
#include "model/activations.h"

#include "model/config.h"

/* One matrix has the tallies of all layers, so that one download fetches them. */
static void tallies_layout(struct activations *a, struct layout *l)
{
    const struct heed_config *c = l->config;
    int encoders = c->encoder_layers, experts = config_experts(c);
    if (!experts || !l->keep) return;
    a->tallies = layout_take(l, encoders + c->decoder_layers, 2 * experts + 1, l->precision.master);
    for (int i = 0; i < a->tallies.rows; i++) {
        struct feed_forward_acts *ff =
            i < encoders ? &a->encoder[i].ff : &a->decoder[i - encoders].ff;
        ff->experts.routing.tally = mat_rows(a->tallies, i, 1);
    }
}

void activations_layout(struct activations *a, struct layout *l, const struct ops *op, int rows_src,
                        int rows_tgt, int rows_memory, int sentences)
{
    int d = l->config->d_model, rows = rows_src > rows_tgt ? rows_src : rows_tgt;
    a->embed_src = layout_take(l, rows_src, d, l->precision.act);
    a->embed_tgt = layout_take(l, rows_tgt, d, l->precision.act);
    encoder_layout(a->encoder, l, rows_src);
    decoder_layout(a->decoder, l, rows_tgt, rows_memory, sentences);
    tallies_layout(a, l);
    final_norm_layout(&a->encoder_norm, l, rows_src);
    final_norm_layout(&a->decoder_norm, l, rows_tgt);
    head_layout(&a->head, l, op, rows_tgt);
    norm_scratch(&a->scratch, l, rows);
    attention_scratch(&a->scratch, l, rows, rows_src);
    feed_forward_scratch(&a->scratch, l, rows);
    if (l->keep) a->dmemory = layout_take(l, rows_src, d, l->precision.act);
}

void activations_bind_source(struct activations *a, const struct heed_config *c, int rows,
                             int rows_memory)
{
    a->embed_src = mat_top(a->embed_src, rows);
    a->dmemory = mat_top(a->dmemory, rows);
    encoder_bind(a->encoder, c, rows);
    norm_bind(&a->encoder_norm, rows);
    decoder_bind_memory(a->decoder, c, rows_memory);
}

void activations_bind_target(struct activations *a, const struct heed_config *c, int rows)
{
    a->embed_tgt = mat_top(a->embed_tgt, rows);
    decoder_bind(a->decoder, c, rows);
    norm_bind(&a->decoder_norm, rows);
}
