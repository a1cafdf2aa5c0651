/*
 * test_no_memory.c - makes each allocation fail, one after another.
 *
 * malloc and its relatives are defined here and replace the C library's for heed and for every
 * library that it uses. An operation is run again and again; each time one more of its allocations
 * succeeds before one fails, until the operation ends without reaching that one. Every time it must
 * either fail with a sentence or manage without the memory, and work the next time. The address of
 * the caller tells whose allocation it is. Under AddressSanitizer the test also shows that nothing
 * leaks.
 *
 * With HEED_TEST_ALL every single allocation fails once; without it the steps grow.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <ftw.h>
#include <jansson.h>
#include <link.h>
#include <stdatomic.h>

#include "base/error.h"
#include "task.h"

/* ---- the real allocators ---- */

/* Memory is allocated before a sanitizer has started; code that runs then must not be instrumented.
 */
#define EARLY __attribute__((no_sanitize("address", "undefined", "thread")))

/* The functions of the C library, and those of a sanitizer, which are used where there is one. */
#define EXPORTED EARLY __attribute__((visibility("default"), noinline))
#define WEAK     __attribute__((weak))
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);
extern void *__interceptor_malloc(size_t) WEAK, *__interceptor_calloc(size_t, size_t) WEAK,
    *__interceptor_realloc(void *, size_t) WEAK, *__interceptor_memalign(size_t, size_t) WEAK;

/* Where the sanitizer is part of the program, operator new below reaches its malloc by way of the
 * C++ library, and it would not know what delete gets for its own. */
EXPORTED const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "alloc_dealloc_mismatch=0";
}

/* ---- whose allocation it is ---- */

enum owner {
    HEED, /* heed itself, and the C library on its behalf */
    JANSSON,
    COMPRESSION,
    OTHERS
};
static const char *const owner_name[] = {"heed", "jansson", "zlib and xz"};

/* Allocations of other libraries never fail, because these do not survive it:
 * - SentencePiece: a message of its protobuf that has no memory to grow crashes when it is freed.
 * - ICU goes on without what it could not load, such as its list of abbreviations, and loses
 * memory.
 * - OpenMP ends the program, and oneDNN's code generator throws through it. */
static const struct {
    const char *part; /* of the file's name */
    enum owner owner;
} library[] = {
    {"libjansson", JANSSON}, {"libz.so", COMPRESSION}, {"liblzma", COMPRESSION}, {"libc.so", HEED}};

/* Ranges of addresses of code, and the library they belong to. */
struct range {
    uintptr_t from, to;
    enum owner owner;
};
static struct range range[256];
static int ranges;

static enum owner owner_of_file(const char *name)
{
    if (!*name) return HEED; /* this program */
    /* A sanitizer allocates memory when a thread starts, and ends the program without. */
    if (__interceptor_malloc && strstr(name, "libc.so")) return OTHERS;
    for (size_t i = 0; i < sizeof library / sizeof *library; i++)
        if (strstr(name, library[i].part)) return library[i].owner;
    return OTHERS;
}

static int range_add(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size, (void)user;
    for (int i = 0; i < info->dlpi_phnum && ranges < 256; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
        uintptr_t from = info->dlpi_addr + p->p_vaddr;
        range[ranges++] = (struct range){from, from + p->p_memsz, owner_of_file(info->dlpi_name)};
    }
    return 0;
}

static enum owner owner_of(const void *caller)
{
    uintptr_t at = (uintptr_t)caller;
    for (int i = 0; i < ranges; i++)
        if (at >= range[i].from && at < range[i].to) return range[i].owner;
    return OTHERS;
}

/* ---- failing allocations ---- */

static struct {
    atomic_bool armed;
    enum owner owner; /* whose calls are counted */
    bool stays;       /* after the first failure, all later allocations fail */
    atomic_long left; /* allocations until the one that fails */
    atomic_bool fired;
} fault;

/* The one call that its library does not survive: where the buffer of jansson's lexer grows. It
 * drops the character there is no room for and goes on, until an assertion about the text fails. */
static const void *lexer_growth;
static size_t watched; /* a malloc of so many bytes is taken for that call; 0: none is */

EARLY static bool refuse(const void *caller)
{
    if (!atomic_load(&fault.armed) || owner_of(caller) != fault.owner) return false;
    if (caller == lexer_growth) return false;
    long left = atomic_fetch_sub(&fault.left, 1);
    if (left > 1 || (left < 1 && !fault.stays)) return false;
    atomic_store(&fault.fired, true);
    errno = ENOMEM;
    return true;
}

EXPORTED void *malloc(size_t n)
{
    if (n == watched && n) lexer_growth = __builtin_return_address(0);
    if (refuse(__builtin_return_address(0))) return NULL;
    return __interceptor_malloc ? __interceptor_malloc(n) : __libc_malloc(n);
}

EXPORTED void *calloc(size_t n, size_t size)
{
    if (refuse(__builtin_return_address(0))) return NULL;
    return __interceptor_calloc ? __interceptor_calloc(n, size) : __libc_calloc(n, size);
}

EXPORTED void *realloc(void *p, size_t n)
{
    if (refuse(__builtin_return_address(0))) return NULL;
    return __interceptor_realloc ? __interceptor_realloc(p, n) : __libc_realloc(p, n);
}

EARLY static void *aligned(size_t align, size_t n)
{
    return __interceptor_memalign ? __interceptor_memalign(align, n) : __libc_memalign(align, n);
}

EXPORTED void *aligned_alloc(size_t align, size_t n)
{
    return refuse(__builtin_return_address(0)) ? NULL : aligned(align, n);
}

EXPORTED void *memalign(size_t align, size_t n)
{
    return refuse(__builtin_return_address(0)) ? NULL : aligned(align, n);
}

EXPORTED int posix_memalign(void **p, size_t align, size_t n)
{
    void *block = refuse(__builtin_return_address(0)) ? NULL : aligned(align, n);
    if (!block) return ENOMEM;
    *p = block;
    return 0;
}

/* operator new would call malloc from the C++ library, so that the owner of an allocation is found
 * here. */
extern void _ZSt17__throw_bad_allocv(void) __attribute__((noreturn)); /* std::__throw_bad_alloc() */
EXPORTED void *_Znwm(size_t n);
EXPORTED void *_Znam(size_t n);
EXPORTED void *_ZnwmRKSt9nothrow_t(size_t n, const void *nothrow);
EXPORTED void *_ZnamRKSt9nothrow_t(size_t n, const void *nothrow);

EARLY static void *new_block(size_t n, const char *name, const void *caller)
{
    if (refuse(caller)) _ZSt17__throw_bad_allocv();
    void *(*real)(size_t) = (void *(*)(size_t))dlsym(RTLD_NEXT, name);
    return real(n);
}

EARLY static void *new_block_or_null(size_t n, const void *nothrow, const char *name,
                                     const void *caller)
{
    if (refuse(caller)) return NULL;
    void *(*real)(size_t, const void *) = (void *(*)(size_t, const void *))dlsym(RTLD_NEXT, name);
    return real(n, nothrow);
}

void *_Znwm(size_t n)
{
    return new_block(n, "_Znwm", __builtin_return_address(0));
}

void *_Znam(size_t n)
{
    return new_block(n, "_Znam", __builtin_return_address(0));
}

void *_ZnwmRKSt9nothrow_t(size_t n, const void *nothrow)
{
    return new_block_or_null(n, nothrow, "_ZnwmRKSt9nothrow_t", __builtin_return_address(0));
}

void *_ZnamRKSt9nothrow_t(size_t n, const void *nothrow)
{
    return new_block_or_null(n, nothrow, "_ZnamRKSt9nothrow_t", __builtin_return_address(0));
}

/* ---- operations ---- */

/* Used by all operations; made before any allocation fails. */
static struct heed_engine *engine;
static struct heed_model *model;
static char dir_a[192], dir_b[192], dir_small[192], dir_out[192], compressed[192];

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *where)
{
    (void)s, (void)kind, (void)where;
    return remove(path);
}

static void remove_tree(const char *dir)
{
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static enum heed_status open_engine(struct heed_error *err)
{
    struct heed_engine *e = heed_engine_open("cpu", 1, err);
    heed_engine_free(e);
    return e ? HEED_OK : err->status;
}

static enum heed_status load_vocab(struct heed_error *err)
{
    struct heed_tokenizer *t = heed_tokenizer_load(place.vocab, err);
    if (!t) return err->status;
    struct heed_ids ids = {0};
    char *text = NULL;
    size_t len;
    enum heed_status st = heed_encode(t, "a b \xff x", 7, &ids, err);
    if (!st) st = heed_decode(t, ids.v, ids.n, &text, &len, err);
    free(text);
    free(ids.v);
    heed_tokenizer_free(t);
    return st;
}

static enum heed_status train_vocab(struct heed_error *err)
{
    struct heed_tokenizer_options o = {.vocab_size = 275};
    return heed_tokenizer_train((const char *[]){compressed}, 1, &o, in_place("other.model"), err);
}

static enum heed_status load_as(const char *dir, enum heed_weights weights, struct heed_error *err)
{
    struct heed_model *m = heed_model_load(engine, dir, weights, err);
    heed_model_free(m);
    return m ? HEED_OK : err->status;
}

static enum heed_status load_model(struct heed_error *err)
{
    enum heed_status st = load_as(dir_a, HEED_WEIGHTS_AS_STORED, err);
    if (!st) st = load_as(dir_a, HEED_WEIGHTS_INT8, err);
    if (!st) st = load_as(dir_small, HEED_WEIGHTS_AS_STORED, err);
    return st;
}

/* A sentence, and a text of several that is cut into them. */
static const char *const source[] = {
    "a b c d", "a b c d e f g h i j a b c d e f g h i j a b c d e f g h i j a b c. Mr. b. D e f g "
               "h i j a b c d "
               "e f g h i j a b c d e f g h i j. A b c d e f g h i j a b c d e f g h i j."};
static char translated[2][512]; /* the results without failures */

static enum heed_status translate(struct heed_error *err)
{
    struct heed_translate_options o = heed_translate_defaults();
    const struct heed_answer *out;
    struct heed_request request[3] = {{.text = source[0],
                                       .options = &o,
                                       .prefix = "d",
                                       .required = (const char *[]){"c b"},
                                       .required_n = 1,
                                       .banned = (const char *[]){"a a"},
                                       .banned_n = 1},
                                      {.text = source[1], .options = &o},
                                      {.text = source[0], .given = "b a"}};
    o.align = o.trace = true;
    o.nbest = 2;
    o.max_length = 20;
    struct heed_session *s = heed_session_open(model, NULL, err);
    if (!s) return err->status;
    enum heed_status st = heed_translate(s, request, 3, &out, err);
    for (int i = 0; !st && i < 2; i++) {
        const char *text = out[i].result->text;
        if (!translated[i][0]) snprintf(translated[i], sizeof translated[i], "%s", text);
        assert_string_equal(text, translated[i]);
    }
    if (st &&
        !heed_translate(s, request, 3, &out, NULL)) /* the failure has no effect on later calls */
        assert_string_equal(out[0].result->text, translated[0]);
    heed_session_free(s);
    return st;
}

/* A text of several sentences under way. */
static enum heed_status grow(struct heed_error *err)
{
    struct heed_request request = {.text = source[1]};
    struct heed_session *s = heed_session_open(model, NULL, err);
    if (!s) return err->status;
    enum heed_status st = heed_submit(s, &request, s, err);
    for (int i = 0; i < 3 && !st; i++) {
        st = heed_advance(s, err);
        if (!st && !heed_partial(s, s)) st = error_memory(err, 1, "a partial text");
    }
    heed_session_free(s);
    return st;
}

static enum heed_status look_inside(struct heed_error *err)
{
    struct heed_request request = {.text = "a b", .given = "b a"};
    struct heed_attention *a = NULL;
    char *picture = NULL;
    struct heed_session *s = heed_session_open(model, NULL, err);
    if (!s) return err->status;
    enum heed_status st = heed_attention_of(s, &request, &a, err);
    for (int kind = HEED_PICTURE_SVG; kind <= HEED_PICTURE_HTML && !st; kind++)
        for (int drawing = HEED_DRAW_MAP; drawing <= HEED_DRAW_GRID && !st; drawing++) {
            if (kind == HEED_PICTURE_TERMINAL && drawing == HEED_DRAW_LINES) continue;
            const struct heed_attention_view view = {.use = HEED_USE_CROSS,
                                                     .drawing = (enum heed_drawing)drawing};
            st = heed_attention_picture(a, (enum heed_picture)kind, &view, &picture, err);
            free(picture);
            picture = NULL;
        }
    heed_attention_free(a);
    heed_session_free(s);
    return st;
}

static enum heed_status study_positions(struct heed_error *err)
{
    struct heed_positions *p = NULL;
    char *picture = NULL;
    enum heed_status st = heed_positions_of(model, 0, 8, &p, err);
    for (int kind = HEED_PICTURE_SVG; kind <= HEED_PICTURE_JSON && !st; kind++) {
        st = heed_positions_picture(p, (enum heed_picture)kind, &picture, err);
        free(picture);
        picture = NULL;
    }
    heed_positions_free(p);
    return st;
}

static enum heed_status study_words(struct heed_error *err)
{
    static const char *const word[] = {"a", "b", "a b c"};
    struct heed_neighbour found[2];
    struct heed_word_map *m = NULL;
    char *picture = NULL;
    int n;
    struct heed_embeddings *e = heed_embeddings_open(model, HEED_SIDE_TARGET, err);
    if (!e) return err->status;
    enum heed_status st = heed_neighbours(e, word, 2, word + 2, 1, 2, found, &n, err);
    if (!st) st = heed_word_map_of(e, word, 3, &m, err);
    for (int kind = HEED_PICTURE_SVG; kind <= HEED_PICTURE_JSON && !st; kind++) {
        st = heed_word_map_picture(m, (enum heed_picture)kind, &picture, err);
        free(picture);
        picture = NULL;
    }
    heed_word_map_free(m);
    heed_embeddings_free(e);
    return st;
}

/* dir_small has int8 weights, which are unpacked. */
static enum heed_status study_heads(struct heed_error *err)
{
    static const char *const src[] = {"a b c", "b a"}, *const tgt[] = {"b a", "a b c"};
    const struct heed_heads_options o = {
        .src = src, .tgt = tgt, .n = 2, .mask = HEED_MASK_BLEU, .tokenize = "13a"};
    struct heed_heads *h = NULL;
    char *picture = NULL;
    enum heed_status st = heed_heads_of(engine, dir_small, &o, &h, err);
    for (int kind = HEED_PICTURE_SVG; kind <= HEED_PICTURE_JSON && !st; kind++) {
        st = heed_heads_picture(h, (enum heed_picture)kind, &picture, err);
        free(picture);
        picture = NULL;
    }
    heed_heads_free(h);
    return st;
}

static struct heed_train_options training(const char *out)
{
    struct heed_train_options o = options(out);
    o.config.d_model = o.config.d_ff = 32;
    o.batch_tokens = 64;
    o.steps = 2;
    o.save_every = 1;
    o.keep = 1;
    return o;
}

static enum heed_status run_trainer(const struct heed_train_options *o, struct heed_error *err)
{
    struct heed_trainer *t = heed_trainer_open(engine, o, err);
    enum heed_status st = t ? heed_trainer_run(t, err) : err->status;
    heed_trainer_free(t);
    return st;
}

/* Two steps with a checkpoint and a validation each, from compressed text. */
static enum heed_status train_model(struct heed_error *err)
{
    static const char *pairs[1];
    static const double weight[] = {2}; /* so that the text is read through an index */
    struct heed_train_options o = training(dir_out);
    pairs[0] = compressed;
    o.train = (struct heed_corpus){.src = pairs, .n = 1, .weight = weight};
    o.valid = o.train;
    o.valid_every = 1;
    return run_trainer(&o, err);
}

static enum heed_status resume(struct heed_error *err)
{
    struct heed_train_options o = training(dir_b);
    o.resume = true;
    o.subword_dropout = 0.1f;
    return run_trainer(&o, err);
}

static enum heed_status average(struct heed_error *err)
{
    return heed_average((const char *[]){dir_a, dir_b}, 2, dir_out, err);
}

static enum heed_status quantize(struct heed_error *err)
{
    return heed_quantize(dir_a, HEED_WEIGHTS_INT8, dir_out, err);
}

static enum heed_status draw_tree(const char *tree, struct heed_error *err)
{
    struct heed_trees *t = NULL;
    char *svg = NULL, *lines = NULL, *linear = NULL, *restored = NULL;
    enum heed_status st = heed_trees_read(tree, "tree", &t, err);
    if (!st) st = heed_tree_picture(t, 0, HEED_PICTURE_SVG, &svg, err);
    if (!st) st = heed_tree_picture(t, 0, HEED_PICTURE_TERMINAL, &lines, err);
    if (!st) st = heed_tree_text(t, 0, HEED_TREE_LINEAR, &linear, err);
    if (!st) st = heed_tree_restore(linear, "a b c", &restored, err);
    heed_trees_free(t);
    free(svg);
    free(lines);
    free(linear);
    free(restored);
    return st;
}

static enum heed_status score(struct heed_error *err)
{
    static const char *const hyp[] = {"a b c", "The dog, it runs.", "\xe4\xb8\x80 dog"};
    static const char *const ref[] = {"a b d", "The dog ran.", "\xe4\xb8\x80\xe5\x8f\xaa dog"};
    struct heed_score s;
    enum heed_status st = heed_bleu(hyp, ref, 3, "13a", &s, err);
    if (!st) st = heed_bleu(hyp, ref, 3, "intl", &s, err);
    if (!st) st = heed_bleu(hyp, ref, 3, "zh", &s, err);
    if (!st) st = heed_chrf(hyp, ref, 3, &s, err);
    const char *const *refs[] = {ref, hyp};
    for (int m = HEED_METRIC_BLEU; m <= HEED_METRIC_TER && !st; m++) {
        const struct heed_scoring how = {(enum heed_metric)m, "13a", true};
        struct heed_score each[3];
        struct heed_comparison of[2];
        st = heed_score_sentences(&how, hyp, refs, 2, 3, each, err);
        if (!st) st = heed_score_systems(&how, refs, 2, refs, 2, 3, 10, 1, of, err);
    }
    const struct heed_scoring parseval = {.metric = HEED_METRIC_PARSEVAL};
    const char *const tree = "(S (NP (DT a) (NN b)) (VP (VB c)))", *const *trees = &tree;
    if (!st) st = heed_score_corpus(&parseval, &tree, &trees, 1, 1, &s, err);
    return st ? st : draw_tree(tree, err);
}

static const struct operation {
    const char *name;
    enum heed_status (*run)(struct heed_error *err);
} operation[] = {
    {"open an engine", open_engine},
    {"load a vocabulary", load_vocab},
    {"train a vocabulary", train_vocab},
    {"load a model", load_model},
    {"translate", translate},
    {"grow", grow},
    {"look inside", look_inside},
    {"study positions", study_positions},
    {"study words", study_words},
    {"study heads", study_heads},
    {"train", train_model},
    {"resume", resume},
    {"average", average},
    {"quantize", quantize},
    {"score", score},
};
enum { OPERATIONS = sizeof operation / sizeof *operation };

/* ---- the test ---- */

/* Runs an operation whose n-th allocation of an owner fails; returns false where it has fewer. */
static bool run_without(const struct operation *op, enum owner owner, long n, bool stays)
{
    struct heed_error err = {0};
    fault.owner = owner;
    fault.stays = stays;
    remove_tree(dir_out);
    atomic_store(&fault.left, n);
    atomic_store(&fault.fired, false);
    atomic_store(&fault.armed, true);
    enum heed_status st = op->run(&err);
    atomic_store(&fault.armed, false);
    if (st && (st != err.status || !err.text[0] || !atomic_load(&fault.fired)))
        fail_msg("%s, allocation %ld of %s: status %d, error %d \"%s\"", op->name, n,
                 owner_name[owner], st, err.status, err.text);
    /* A library may call it by another name: jansson finds the text at fault. */
    if (st && st != HEED_ENOMEM && owner == HEED)
        fail_msg("%s, allocation %ld of %s: status %d, \"%s\"", op->name, n, owner_name[owner], st,
                 err.text);
    return atomic_load(&fault.fired);
}

static void must_work(const struct operation *op)
{
    struct heed_error err = {0};
    remove_tree(dir_out);
    if (op->run(&err)) fail_msg("%s, with memory: %s", op->name, err.text);
}

static void without_memory(enum owner owner, bool stays)
{
    bool all = getenv("HEED_TEST_ALL");
    for (int i = 0; i < OPERATIONS; i++) {
        const struct operation *op = &operation[i];
        long n = 1, runs = 0;
        while (run_without(op, owner, n, stays)) {
            if (all || runs % 16 == 0) must_work(op);
            n += all ? 1 : 1 + n / 8;
            runs++;
        }
        must_work(op);
        printf("%s: %ld of %ld allocations of %s refused\n", op->name, runs, n - 1,
               owner_name[owner]);
    }
}

static void test_once(void **state)
{
    (void)state;
    for (enum owner owner = HEED; owner < OTHERS; owner++) without_memory(owner, false);
}

static void test_for_good(void **state)
{
    (void)state;
    for (enum owner owner = HEED; owner < OTHERS; owner++) without_memory(owner, true);
}

/* The buffer doubles from 16 bytes on; no other part of this text is as large as this. */
static void find_lexer_growth(void)
{
    static char text[5000];
    memset(text, 'x', sizeof text - 1);
    memcpy(text, "[\"", 2);
    memcpy(text + sizeof text - 3, "\"]", 2);
    watched = 4096;
    json_t *j = json_loads(text, 0, NULL);
    watched = 0;
    assert_non_null(j);
    assert_non_null(lexer_growth);
    json_decref(j);
}

static int make_things(void **state)
{
    struct heed_error err = {0};
    if (set_up(state)) return -1;
    snprintf(dir_a, sizeof dir_a, "%s/a", place.dir);
    snprintf(dir_b, sizeof dir_b, "%s/b", place.dir);
    snprintf(dir_small, sizeof dir_small, "%s/small", place.dir);
    snprintf(dir_out, sizeof dir_out, "%s/out", place.dir);
    snprintf(compressed, sizeof compressed, "%s/pairs.gz", place.dir);
    char command[768];
    snprintf(command, sizeof command, "paste %s %s | head -n 40 | gzip > %s", place.src, place.tgt,
             compressed);
    if (system(command)) return -1;
    engine = heed_engine_open("cpu", 1, &err);
    struct heed_train_options a = training(dir_a), b = training(dir_b);
    b.subword_dropout = 0.1f;
    if (!engine || run_trainer(&a, &err) || run_trainer(&b, &err) ||
        heed_quantize(dir_a, HEED_WEIGHTS_INT8, dir_small, &err) ||
        !(model = heed_model_load(engine, dir_a, HEED_WEIGHTS_AS_STORED, &err)))
        fail_msg("%s", err.text);
    dl_iterate_phdr(range_add, NULL);
    find_lexer_growth();
    for (int i = 0; i < OPERATIONS; i++) must_work(&operation[i]);
    return 0;
}

static int free_things(void **state)
{
    heed_model_free(model);
    heed_engine_free(engine);
    return tear_down(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once),
        cmocka_unit_test(test_for_good),
    };
    return cmocka_run_group_tests(tests, make_things, free_things);
}
