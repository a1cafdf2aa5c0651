/*
 * link_none.cu - a build without NCCL; see struct link_ops. Nothing but load is ever called.
 */
#include "ops/cuda/cuda.h"

static enum heed_status load(struct backend *, struct link_info *, struct heed_error *err)
{
    return error_set(err, HEED_EUNSUPPORTED,
                     "this heed was built without NCCL: install NCCL with its header, nccl.h, and "
                     "build again");
}

const struct link_ops cuda_links = {.load = load};

void link_sync(struct gpu *)
{
}

void link_release(struct gpu *)
{
}
