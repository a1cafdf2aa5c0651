/*
 * decoder.c - see decoder.h.
 */
#include "model/decoder.h"

void decoder_walk(struct walk *k, struct decoder_weights *w, const struct heed_config *c)
{
    struct decoder_weights unused;
    for (int l = 0; l < c->decoder_layers; l++) {
        struct decoder_weights *layer = w ? &w[l] : &unused;
        walk_enter(k, "decoder.layers.%d.self_attn.", l);
        attention_walk(k, &layer->self, c, true);
        walk_enter(k, "decoder.layers.%d.cross_attn.", l);
        attention_walk(k, &layer->cross, c, false);
        walk_enter(k, "decoder.layers.%d.ff.", l);
        feed_forward_walk(k, &layer->ff, c);
    }
}

void decoder_layout(struct decoder_acts *a, struct layout *l, int rows, int memory_rows,
                    int sentences)
{
    for (int i = 0; i < l->config->decoder_layers; i++) {
        if (i && layout_shared(l)) {
            a[i] = a[0];
            if (l->keep) a[i].ff.y = norm_output_layout(l, rows);
        } else {
            self_attention_layout(&a[i].self, l, rows);
            cross_attention_layout(&a[i].cross, l, rows);
            feed_forward_layout(&a[i].ff, l, rows);
        }
        memory_keys_layout(&a[i].cross, l, memory_rows, sentences);
    }
}

void decoder_bind(struct decoder_acts *a, const struct heed_config *c, int rows)
{
    for (int i = 0; i < c->decoder_layers; i++) {
        self_attention_bind(&a[i].self, rows);
        cross_attention_bind(&a[i].cross, rows);
        feed_forward_bind(&a[i].ff, rows);
    }
}

void decoder_bind_memory(struct decoder_acts *a, const struct heed_config *c, int memory_rows)
{
    for (int i = 0; i < c->decoder_layers; i++) memory_keys_bind(&a[i].cross, memory_rows);
}

void decoder_memory(const struct pass *p, const struct decoder_weights *w,
                    const struct decoder_acts *a, struct mat memory, struct mat wide,
                    const struct seqs *seqs, struct memory_place at)
{
    for (int l = 0; l < p->config->decoder_layers; l++)
        memory_keys(p, &w[l].cross, &a[l].cross, memory, wide, seqs, at);
}

static struct mat layer_forward(const struct pass *p, const struct decoder_weights *w,
                                const struct decoder_acts *a, struct mat x,
                                const struct decoder_view *v, int l)
{
    const struct heed_config *c = p->config;
    struct kv_cache cache = {v->cache ? v->cache->layer[l] : (struct mat){0}, v->cache_at};
    x = self_attention(p, &w->self, &a->self, x, &v->self, v->cache ? &cache : NULL,
                       decoder_site(c, l, SITE_SELF));
    x = cross_attention(p, &w->cross, &a->cross, x, &v->cross, decoder_site(c, l, SITE_CROSS));
    return feed_forward(p, &w->ff, &a->ff, x, decoder_site(c, l, SITE_FEED_FORWARD));
}

struct mat decoder_forward(const struct pass *p, const struct decoder_weights *w,
                           const struct decoder_acts *a, struct mat x, const struct decoder_view *v)
{
    for (int l = 0; l < p->config->decoder_layers; l++) x = layer_forward(p, &w[l], &a[l], x, v, l);
    return x;
}

struct mat decoder_backward(const struct pass *p, const struct decoder_weights *w,
                            const struct decoder_weights *g, const struct decoder_acts *a,
                            struct mat dmemory, struct mat dy, struct mat x, struct mat memory,
                            const struct decoder_view *v)
{
    const struct heed_config *c = p->config;
    int last = c->decoder_layers - 1;
    for (int l = last; l >= 0; l--) {
        struct mat below = l ? a[l - 1].ff.y : x;
        if (pass_recomputes(p, l, last)) layer_forward(p, &w[l], &a[l], below, v, l);
        dy = feed_forward_backward(p, &w[l].ff, &g[l].ff, &a[l].ff, dy, a[l].cross.y,
                                   decoder_site(c, l, SITE_FEED_FORWARD));
        dy = cross_attention_backward(p, &w[l].cross, &g[l].cross, &a[l].cross, dmemory,
                                      l == last ? 0 : 1, dy, a[l].self.y, memory, &v->cross,
                                      decoder_site(c, l, SITE_CROSS));
        dy = self_attention_backward(p, &w[l].self, &g[l].self, &a[l].self, dy, below, &v->self,
                                     decoder_site(c, l, SITE_SELF));
        pass_final(p, 1 + c->encoder_layers + l);
    }
    return dy;
}
