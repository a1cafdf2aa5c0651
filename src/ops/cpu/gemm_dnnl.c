/*
 * gemm_dnnl.c - matrix products by oneDNN; the only file that knows it.
 *
 * Place: under gemm.c. Order: gemm_dnnl_open, gemm_dnnl_run many times, gemm_dnnl_free.
 *
 * A primitive is code generated for one shape. Generating it can take longer than computing the
 * product, so primitives are kept in a hash table whose key is all that the code depends on. The
 * matrices stay in their row-major layout; a primitive that needs another layout copies them into
 * scratch memory. The scratch memory is allocated here and shared by all primitives: oneDNN's own
 * belongs to the thread that created the primitive, and another thread may use this struct gemm.
 *
 * How the promises of gemm.h are kept:
 * - Only "brg" kernels are used. Their order of additions depends on the inner side alone. The
 *   other kernels (before AVX-512, in bf16 without bf16 instructions, for column views of wider
 *   matrices) compute the last rows differently from the first and divide the rows by the number of
 *   threads.
 * - Kernels for AMX are not used. They divide the inner side among the threads: on a Xeon with AMX,
 *   oneDNN 2.6 gave other bits with 2 threads than with 1, and with 272 rows than with 784. And on
 *   virtual machines that show the flags of AMX but hide the CPUID leaf that describes its tiles,
 *   they end in an illegal instruction. (dnnl_set_max_cpu_isa would keep oneDNN from AMX as well,
 *   but for the whole process, only before its first use, and it would override the user's
 *   environment.)
 * - The long inner side of a weight gradient is divided here into pieces that are added one after
 *   the other; oneDNN would divide it among the threads.
 */
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/random.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/guard.h"

/* ---- what differs between oneDNN 2 and 3: descriptors became opaque, attributes lost scales ----
 */

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t desc_ref;

static desc_ref desc_look(const dnnl_memory_desc_t *d)
{
    return *d;
}
static dnnl_status_t desc_init(dnnl_memory_desc_t *d, const dnnl_dims_t dims, dnnl_data_type_t t,
                               const dnnl_dims_t strides)
{
    return dnnl_memory_desc_create_with_strides(d, 2, dims, t, strides);
}
static void desc_release(dnnl_memory_desc_t *d)
{
    dnnl_memory_desc_destroy(*d);
}
static dnnl_status_t post_ops_add(dnnl_post_ops_t p, bool sum, bool relu)
{
    dnnl_status_t s = dnnl_success;
    if (sum) s = dnnl_post_ops_append_sum(p, 1.0f, 0, dnnl_data_type_undef);
    if (relu && s == dnnl_success) s = dnnl_post_ops_append_eltwise(p, dnnl_eltwise_relu, 0, 0);
    return s;
}
static dnnl_status_t matmul_plan(dnnl_primitive_desc_t *pd, dnnl_engine_t e, desc_ref a, desc_ref b,
                                 desc_ref bias, desc_ref c, const_dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(pd, e, a, b, bias, c, attr);
}
#else
typedef const dnnl_memory_desc_t *desc_ref;

static desc_ref desc_look(const dnnl_memory_desc_t *d)
{
    return d;
}
static dnnl_status_t desc_init(dnnl_memory_desc_t *d, const dnnl_dims_t dims, dnnl_data_type_t t,
                               const dnnl_dims_t strides)
{
    return dnnl_memory_desc_init_by_strides(d, 2, dims, t, strides);
}
static void desc_release(dnnl_memory_desc_t *d)
{
    (void)d;
}
static dnnl_status_t post_ops_add(dnnl_post_ops_t p, bool sum, bool relu)
{
    dnnl_status_t s = dnnl_success;
    if (sum) s = dnnl_post_ops_append_sum(p, 1.0f);
    if (relu && s == dnnl_success)
        s = dnnl_post_ops_append_eltwise(p, 1.0f, dnnl_eltwise_relu, 0, 0);
    return s;
}
static dnnl_status_t matmul_plan(dnnl_primitive_desc_t *pd, dnnl_engine_t e, desc_ref a, desc_ref b,
                                 desc_ref bias, desc_ref c, const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t d;
    dnnl_status_t s = dnnl_matmul_desc_init(&d, a, b, bias, c);
    return s == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, e, NULL) : s;
}
#endif

/* ---- a product of one shape ---- */

enum { ARG_A, ARG_B, ARG_C, ARG_BIAS, ARG_SCRATCH, ARGS };
static const int arg_name[ARGS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS,
                                   DNNL_ARG_SCRATCHPAD};

enum { BF16 = 1, C_BF16 = 2, TA = 4, TB = 8, SUM = 16, BIAS = 32, RELU = 64 };

/* Keys are compared as bytes, so there must be no padding. */
struct key {
    int32_t m, n, k, lda, ldb, ldc, flags;
};

struct product {
    struct key key;             /* m == 0: an empty slot */
    dnnl_primitive_t primitive; /* NULL: oneDNN has no kernel that is used here */
    dnnl_memory_t mem[ARGS];    /* refer to the job's matrices; NULL: no such argument */
    size_t scratch;             /* bytes of scratch memory */
};

/* A training run needs one to two thousand primitives: the products of a layer times the distinct
 * numbers of rows, in steps of ROW_PAD. A primitive takes 12 to 32 KiB, mostly code, and 0.15 to
 * 0.35 ms to create. A full table is emptied. */
enum { SLOTS = 4096, SLOTS_FULL = 2048 };

struct gemm_dnnl {
    int threads;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    void *scratch; /* as large as the product that needs most so far */
    size_t scratch_size;
    int used;
    struct product slot[SLOTS];
};

static struct key key_of(const struct gemm_job *j)
{
    int flags = (j->a.type == TYPE_BF16 ? BF16 : 0) | (j->c.type == TYPE_BF16 ? C_BF16 : 0) |
                (j->ta ? TA : 0) | (j->tb ? TB : 0) | (j->beta != 0 ? SUM : 0) |
                (j->bias.p ? BIAS : 0) | (j->relu ? RELU : 0);
    return (struct key){j->c.rows, j->c.cols, gemm_inner(j), j->a.ld, j->b.ld, j->c.ld, flags};
}

static enum heed_status fail(struct heed_error *err, const struct key *k, const char *doing,
                             dnnl_status_t s)
{
    enum heed_status status = s == dnnl_out_of_memory ? HEED_ENOMEM : HEED_EARG;
    return error_set(err, status,
                     "oneDNN %d.%d fails %s a product of [%d,%d] and [%d,%d] in %s: %s (%d)",
                     DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, doing, k->m, k->k, k->k, k->n,
                     k->flags & BF16 ? "bf16" : "f32",
                     s == dnnl_out_of_memory ? "out of memory" : "status", (int)s);
}

/* The descriptors of a, b, c and bias. A transposed matrix is its strides swapped. */
static dnnl_status_t key_descs(dnnl_memory_desc_t d[ARG_SCRATCH], const struct key *k)
{
    dnnl_data_type_t in = k->flags & BF16 ? dnnl_bf16 : dnnl_f32;
    dnnl_data_type_t out = k->flags & C_BF16 ? dnnl_bf16 : dnnl_f32;
    struct {
        dnnl_dims_t dims, strides;
        dnnl_data_type_t type;
    } v[ARG_SCRATCH] = {{{k->m, k->k}, {k->lda, 1}, in},
                        {{k->k, k->n}, {k->ldb, 1}, in},
                        {{k->m, k->n}, {k->ldc, 1}, out},
                        {{1, k->n}, {k->n, 1}, dnnl_f32}};
    if (k->flags & TA) v[ARG_A].strides[0] = 1, v[ARG_A].strides[1] = k->lda;
    if (k->flags & TB) v[ARG_B].strides[0] = 1, v[ARG_B].strides[1] = k->ldb;
    dnnl_status_t s = dnnl_success;
    for (int i = 0; i < ARG_SCRATCH && s == dnnl_success; i++)
        s = desc_init(&d[i], v[i].dims, v[i].type, v[i].strides);
    return s;
}

static dnnl_status_t key_attr(dnnl_primitive_attr_t *attr, const struct key *k)
{
    dnnl_post_ops_t post = NULL;
    dnnl_status_t s;
    if ((s = dnnl_post_ops_create(&post)) || (s = dnnl_primitive_attr_create(attr)) ||
        (s = post_ops_add(post, k->flags & SUM, k->flags & RELU)) ||
        (s = dnnl_primitive_attr_set_post_ops(*attr, post)))
        goto out;
    s = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
out:
    if (post) dnnl_post_ops_destroy(post);
    return s;
}

static dnnl_status_t key_plan(dnnl_primitive_desc_t *plan, const struct key *k, dnnl_engine_t e)
{
    dnnl_memory_desc_t d[ARG_SCRATCH] = {0};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t s;
    if ((s = key_descs(d, k)) || (s = key_attr(&attr, k))) goto out;
    s = matmul_plan(plan, e, desc_look(&d[ARG_A]), desc_look(&d[ARG_B]),
                    k->flags & BIAS ? desc_look(&d[ARG_BIAS]) : NULL, desc_look(&d[ARG_C]), attr);
out:
    if (attr) dnnl_primitive_attr_destroy(attr);
    for (int i = 0; i < ARG_SCRATCH; i++) desc_release(&d[i]);
    return s;
}

static void product_release(struct product *p)
{
    for (int i = 0; i < ARGS; i++)
        if (p->mem[i]) dnnl_memory_destroy(p->mem[i]);
    if (p->primitive) dnnl_primitive_destroy(p->primitive);
    *p = (struct product){0};
}

static dnnl_status_t product_build(struct product *p, const struct gemm_dnnl *d,
                                   const_dnnl_primitive_desc_t plan)
{
    dnnl_status_t s = dnnl_primitive_create(&p->primitive, plan);
    for (int i = 0; i < ARGS && s == dnnl_success; i++) {
        if (i == ARG_BIAS && !(p->key.flags & BIAS)) continue;
        desc_ref desc = dnnl_primitive_desc_query_md(plan, dnnl_query_exec_arg_md, arg_name[i]);
        if (i == ARG_SCRATCH) p->scratch = dnnl_memory_desc_get_size(desc);
        s = dnnl_memory_create(&p->mem[i], desc, d->engine, DNNL_MEMORY_NONE);
    }
    return s;
}

/* Also succeeds where oneDNN has no kernel that is used here: the product then has no primitive. */
static dnnl_status_t product_init(struct product *p, const struct gemm_dnnl *d, const struct key *k)
{
    const char *kernel = "";
    dnnl_primitive_desc_t plan = NULL;
    *p = (struct product){.key = *k};
    dnnl_status_t s = key_plan(&plan, k, d->engine);
    if (s == dnnl_success)
        s = dnnl_primitive_desc_query(plan, dnnl_query_impl_info_str, 0, &kernel);
    if (s == dnnl_success && gemm_kernel_taken(kernel)) s = product_build(p, d, plan);
    if (s == dnnl_unimplemented) s = dnnl_success;
    if (s != dnnl_success) product_release(p);
    if (plan) dnnl_primitive_desc_destroy(plan);
    return s;
}

static dnnl_status_t product_run(const struct product *p, const struct gemm_dnnl *d,
                                 const struct gemm_job *j)
{
    void *const at[ARGS] = {j->a.p, j->b.p, j->c.p, j->bias.p, d->scratch};
    dnnl_exec_arg_t arg[ARGS];
    int n = 0;
    for (int i = 0; i < ARGS; i++) {
        if (!p->mem[i]) continue;
        dnnl_status_t s = dnnl_memory_set_data_handle(p->mem[i], at[i]);
        if (s != dnnl_success) return s;
        arg[n++] = (dnnl_exec_arg_t){arg_name[i], p->mem[i]};
    }
    dnnl_status_t s = dnnl_primitive_execute(p->primitive, d->stream, n, arg);
    return s == dnnl_success ? dnnl_stream_wait(d->stream) : s;
}

/* ---- oneDNN without memory ---- */

/* oneDNN is written in C++: where an allocation fails, it throws an exception through its C
 * functions. Where the allocation for generated code fails, it writes to that address all the same;
 * so before code is generated, more memory than that must be available. */
enum { RESERVE = 8 << 20 };

static bool memory_left(void)
{
    void *p = mmap(NULL, RESERVE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return false;
    munmap(p, RESERVE);
    return true;
}

struct call {
    struct gemm_dnnl *d;
    struct product *product;
    const struct key *key;
    const struct gemm_job *job;
};

static int call_init(void *arg)
{
    struct call *c = arg;
    return product_init(c->product, c->d, c->key);
}

static int call_run(void *arg)
{
    struct call *c = arg;
    return product_run(c->product, c->d, c->job);
}

static int call_start(void *arg)
{
    struct gemm_dnnl *d = ((struct call *)arg)->d;
    dnnl_status_t s = dnnl_engine_create(&d->engine, dnnl_cpu, 0);
    if (s == dnnl_success) s = dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags);
    return s;
}

static dnnl_status_t guarded(int (*f)(void *arg), struct call c)
{
    return (dnnl_status_t)guard_call(f, &c, dnnl_out_of_memory);
}

/* ---- the table of products ---- */

static void table_clear(struct gemm_dnnl *d)
{
    for (int i = 0; i < SLOTS; i++)
        if (d->slot[i].key.m) product_release(&d->slot[i]);
    d->used = 0;
}

/* The slot of this key, or the empty slot in which it would be stored. */
static struct product *table_find(struct gemm_dnnl *d, const struct key *k)
{
    const int32_t v[] = {k->n, k->k, k->lda, k->ldb, k->ldc, k->flags};
    uint64_t h = (uint64_t)k->m;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) h = random_mix(h ^ (uint64_t)v[i]);
    struct product *p = &d->slot[h % SLOTS];
    while (p->key.m && memcmp(&p->key, k, sizeof *k) != 0)
        if (++p == d->slot + SLOTS) p = d->slot;
    return p;
}

static bool scratch_reserve(struct gemm_dnnl *d, size_t bytes)
{
    const size_t page = 4096;
    if (bytes <= d->scratch_size) return true;
    free(d->scratch);
    bytes = (bytes + page - 1) / page * page;
    d->scratch = aligned_alloc(page, bytes);
    d->scratch_size = d->scratch ? bytes : 0;
    return d->scratch != NULL;
}

/* The product of this job, created where the table does not have it yet; the table must have room.
 * HEED_EUNSUPPORTED: oneDNN has no kernel for it that is used here. */
static enum heed_status table_get(struct gemm_dnnl *d, struct product **out,
                                  const struct gemm_job *j, struct heed_error *err)
{
    struct key k = key_of(j);
    struct product *p = *out = table_find(d, &k);
    if (!p->key.m) {
        dnnl_status_t s = dnnl_out_of_memory;
        if (memory_left()) s = guarded(call_init, (struct call){.d = d, .product = p, .key = &k});
        if (s != dnnl_success) {
            product_release(p);
            return fail(err, &k, "preparing", s);
        }
        d->used++;
    }
    if (!p->primitive) return HEED_EUNSUPPORTED;
    if (!scratch_reserve(d, p->scratch))
        return error_memory(err, p->scratch, "the scratch memory of matrix products");
    return HEED_OK;
}

/* ---- pieces of the inner side ---- */

/* When a is transposed, oneDNN divides an inner side of 2048 or more among threads. */
enum { PIECE = 1024, PIECE_KINDS = 3 }; /* kinds: first, middle, last */

/* The piece that begins at k. */
static struct gemm_job piece_at(const struct gemm_job *j, int k)
{
    struct gemm_job p = *j;
    if (!j->ta) return p;
    int inner = gemm_inner(j), n = inner - k < PIECE ? inner - k : PIECE;
    p.a = mat_rows(j->a, k, n);
    p.b = j->tb ? mat_cols(j->b, k, n) : mat_rows(j->b, k, n);
    if (k > 0) {
        p.beta = 1;
        p.bias = (struct mat){0};
    }
    p.relu = j->relu && k + n == inner;
    return p;
}

/* Creates the primitives of all pieces first, because c must be untouched where a piece is refused.
 * Adding pieces in bf16 would round each time, so a c in bf16 is refused. */
static enum heed_status run_pieces(struct gemm_dnnl *d, const struct gemm_job *j,
                                   struct heed_error *err)
{
    struct product *product;
    int inner = gemm_inner(j), step = j->ta ? PIECE : inner;
    if (inner > step && j->c.type != TYPE_F32) return HEED_EUNSUPPORTED;
    if (d->used + PIECE_KINDS > SLOTS_FULL) table_clear(d);
    for (int k = 0; k < inner; k += step) {
        struct gemm_job p = piece_at(j, k);
        enum heed_status status = table_get(d, &product, &p, err);
        if (status != HEED_OK) return status;
    }
    for (int k = 0; k < inner; k += step) {
        struct gemm_job p = piece_at(j, k);
        enum heed_status status = table_get(d, &product, &p, err);
        if (status != HEED_OK) return status;
        dnnl_status_t s = guarded(call_run, (struct call){.d = d, .product = product, .job = &p});
        if (s != dnnl_success) return fail(err, &product->key, "computing", s);
    }
    return HEED_OK;
}

/* oneDNN uses as many threads as OpenMP would start for the caller. That setting belongs to the
 * calling thread: other threads of the process do not see it change. */
enum heed_status gemm_dnnl_run(struct gemm_dnnl *d, const struct gemm_job *j,
                               struct heed_error *err)
{
    int before = omp_get_max_threads();
    if (before != d->threads) omp_set_num_threads(d->threads);
    enum heed_status status = run_pieces(d, j, err);
    if (before != d->threads) omp_set_num_threads(before);
    return status;
}

enum heed_status gemm_dnnl_open(struct gemm_dnnl **out, int threads, struct heed_error *err)
{
    struct gemm_dnnl *d = calloc(1, sizeof *d);
    if (!d) return error_memory(err, sizeof *d, "the table of matrix products");
    d->threads = threads;
    dnnl_status_t s =
        memory_left() ? guarded(call_start, (struct call){.d = d}) : dnnl_out_of_memory;
    if (s != dnnl_success) {
        gemm_dnnl_free(d);
        if (s == dnnl_out_of_memory) return error_memory(err, RESERVE, "matrix products");
        return error_set(err, HEED_EUNSUPPORTED, "oneDNN %d.%d does not start: status %d",
                         DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, (int)s);
    }
    *out = d;
    return HEED_OK;
}

void gemm_dnnl_free(struct gemm_dnnl *d)
{
    if (!d) return;
    table_clear(d);
    if (d->stream) dnnl_stream_destroy(d->stream);
    if (d->engine) dnnl_engine_destroy(d->engine);
    free(d->scratch);
    free(d);
}
