/*
 * encoder.c - see encoder.h.
 */
#include "model/encoder.h"

void encoder_walk(struct walk *k, struct encoder_weights *w, const struct heed_config *c)
{
    struct encoder_weights unused;
    for (int l = 0; l < c->encoder_layers; l++) {
        struct encoder_weights *layer = w ? &w[l] : &unused;
        walk_enter(k, "encoder.layers.%d.self_attn.", l);
        attention_walk(k, &layer->self, c, true);
        walk_enter(k, "encoder.layers.%d.ff.", l);
        feed_forward_walk(k, &layer->ff, c);
    }
}

void encoder_layout(struct encoder_acts *a, struct layout *l, int rows)
{
    for (int i = 0; i < l->config->encoder_layers; i++) {
        if (i && layout_shared(l)) {
            a[i] = a[0];
            if (l->keep) a[i].ff.y = norm_output_layout(l, rows);
            continue;
        }
        self_attention_layout(&a[i].self, l, rows);
        feed_forward_layout(&a[i].ff, l, rows);
    }
}

void encoder_bind(struct encoder_acts *a, const struct heed_config *c, int rows)
{
    for (int i = 0; i < c->encoder_layers; i++) {
        self_attention_bind(&a[i].self, rows);
        feed_forward_bind(&a[i].ff, rows);
    }
}

static struct mat layer_forward(const struct pass *p, const struct encoder_weights *w,
                                const struct encoder_acts *a, struct mat x, const struct seqs *seqs,
                                int l)
{
    x = self_attention(p, &w->self, &a->self, x, seqs, NULL, encoder_site(l, SITE_SELF));
    return feed_forward(p, &w->ff, &a->ff, x, encoder_site(l, SITE_FEED_FORWARD));
}

struct mat encoder_forward(const struct pass *p, const struct encoder_weights *w,
                           const struct encoder_acts *a, struct mat x, const struct seqs *seqs)
{
    for (int l = 0; l < p->config->encoder_layers; l++)
        x = layer_forward(p, &w[l], &a[l], x, seqs, l);
    return x;
}

struct mat encoder_backward(const struct pass *p, const struct encoder_weights *w,
                            const struct encoder_weights *g, const struct encoder_acts *a,
                            struct mat dy, struct mat x, const struct seqs *seqs)
{
    int last = p->config->encoder_layers - 1;
    for (int l = last; l >= 0; l--) {
        struct mat below = l ? a[l - 1].ff.y : x;
        if (pass_recomputes(p, l, last)) layer_forward(p, &w[l], &a[l], below, seqs, l);
        dy = feed_forward_backward(p, &w[l].ff, &g[l].ff, &a[l].ff, dy, a[l].self.y,
                                   encoder_site(l, SITE_FEED_FORWARD));
        dy = self_attention_backward(p, &w[l].self, &g[l].self, &a[l].self, dy, below, seqs,
                                     encoder_site(l, SITE_SELF));
        pass_final(p, 1 + l);
    }
    return dy;
}
