/*
 * mask.c - see mask.h.
 */
#include "study/mask.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum heed_status mask_open(struct mask *m, struct parameters *p, struct heed_error *err)
{
    const struct heed_config *c = &p->config;
    size_t bytes = (size_t)c->d_model * c->heads * config_d_v(c) * sizeof(float);
    assert(p->precision.matrix == TYPE_F32);
    *m = (struct mask){.p = p, .kept = malloc(bytes), .host = malloc(bytes)};
    return m->kept && m->host ? HEED_OK : error_memory(err, 2 * bytes, "masked heads");
}

void mask_release(struct mask *m)
{
    free(m->kept);
    free(m->host);
}

static struct mat projection(const struct weights *w, enum heed_attention_use use, int layer)
{
    return use == HEED_USE_ENCODER   ? w->encoder[layer].self.out
           : use == HEED_USE_DECODER ? w->decoder[layer].self.out
                                     : w->decoder[layer].cross.out;
}

static size_t bytes_of(struct mat w)
{
    return (size_t)w.rows * w.cols * sizeof(float);
}

enum heed_status mask_put(struct mask *m, enum heed_attention_use use, int layer, int head,
                          struct heed_error *err)
{
    struct backend *be = m->p->be;
    struct mat out = projection(&m->p->w, use, layer);
    int width = config_d_v(&m->p->config);
    assert(!m->out.p);
    be->op->download(be, m->kept, out.p, bytes_of(out));
    enum heed_status status = be->op->sync(be, err);
    if (status) return status;
    memcpy(m->host, m->kept, bytes_of(out));
    for (int r = 0; r < out.rows; r++)
        memset(m->host + (size_t)r * out.cols + (size_t)head * width, 0, width * sizeof *m->host);
    be->op->upload(be, out.p, m->host, bytes_of(out));
    m->out = out;
    return be->op->sync(be, err);
}

enum heed_status mask_lift(struct mask *m, struct heed_error *err)
{
    struct backend *be = m->p->be;
    if (!m->out.p) return HEED_OK;
    be->op->upload(be, m->out.p, m->kept, bytes_of(m->out));
    m->out = (struct mat){0};
    return be->op->sync(be, err);
}
