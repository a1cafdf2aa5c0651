/*
 * test_spelling.c - characters that a vocabulary cannot spell: what the model reads of a text,
 * where the rest is copied to in the translation, and what is reported. With a vocabulary whose
 * bytes the model has learned, nothing is changed.
 */
#include "small_model.h"

#include "base/random.h"
#include "base/utf8.h"
#include "decode/join.h"
#include "decode/restore.h"
#include "tokens/tokenizer.h"

static struct heed_engine *engine;
static struct heed_model *model;
static const struct heed_tokenizer *vocab; /* of the model */

/* Pairs of numbers and their words, with every letter somewhere, and a few Chinese characters. */
static const char *put_pairs(void)
{
    char *pairs = NULL;
    size_t n;
    FILE *f = open_memstream(&pairs, &n);
    for (int i = 0; i < 400; i++) {
        fprintf(f, "Number %d comes. It goes!\tDie Zahl %d kommt. Sie geht!\n", i * 7, i * 7);
        fprintf(
            f,
            "The quick brown fox (%d), jumps: over a lazy dog?\tder faule Fuchs springt \"%d\"\n",
            i, i);
        fprintf(f, "a\\b is a path of %d caf\u00e9s\t我爱你的书。这里是'%d'\n", i, i);
    }
    fclose(f);
    const char *path = put_text("pairs", pairs);
    free(pairs);
    return path;
}

static int setup(void **state)
{
    if (folder_make(state)) return -1;
    const char *path = put_pairs();
    struct heed_error err = {0};
    struct heed_tokenizer_options v = {
        .vocab_size = 460, .tags = (const char *[]){">>de<<"}, .tags_n = 1};
    small_model_train(path, &v);
    engine = heed_engine_open("cpu", 2, &err);
    must(engine ? HEED_OK : err.status, &err);
    model = heed_model_load(engine, at("model"), HEED_WEIGHTS_AS_STORED, &err);
    must(model ? HEED_OK : err.status, &err);
    vocab = heed_model_tokenizer(model);
    return 0;
}

static int teardown(void **state)
{
    heed_model_free(model);
    heed_engine_free(engine);
    return folder_remove(state);
}

/* ---- which vocabularies ---- */

static bool spells(const struct heed_tokenizer *t, const char *text)
{
    struct heed_error err = {0};
    struct heed_ids ids = {0};
    must(heed_encode(t, text, strlen(text), &ids, &err), &err);
    bool spelled = tokenizer_spells(t, ids.v, ids.n);
    free(ids.v);
    return spelled;
}

/* Where characters of the training text are written in bytes, the model learns these. */
static void test_vocabularies(void **state)
{
    (void)state;
    assert_false(tokenizer_knows_bytes(vocab));
    assert_true(spells(vocab, "The caf\u00e9 (77) 我"));
    assert_false(spells(vocab, "😀"));
    assert_false(spells(vocab, "<"));
    struct heed_error err = {0};
    struct heed_tokenizer_options v = {.vocab_size = 330};
    const char *path = at("pairs");
    must(heed_tokenizer_train(&path, 1, &v, at("small"), &err), &err);
    struct heed_tokenizer *small = heed_tokenizer_load(at("small"), &err);
    must(small ? HEED_OK : err.status, &err);
    assert_true(tokenizer_knows_bytes(small));
    assert_true(spells(small, "😀 <"));
    heed_tokenizer_free(small);
}

/* ---- what is read ---- */

/* Shows the text with stretches that are copied in [] and those that are left out in {}. */
static const struct {
    const char *text, *read, *stretches;
} reading[] = {
    {"The fox 😀!", "The fox!", "[😀]"},
    {"😀 The fox", "The fox", "[😀]"},
    {"The 😀 fox", "The fox", "[😀]"},
    {"The😀fox jumps", "jumps", "[The😀fox]"},
    {"fox <b>brown</b> dog", "fox brown dog", "[<b>][</b>]"},
    {"<a href=\"x y\">fox</a>", "fox", "[<a href=\"x y\">][</a>]"},
    {"fox<br/>dog", "fox dog", "[<br/>]"},
    {"5 < 7", "5 7", "[<]"},
    {"x<3, 5>y.", ",.", "[x<3][5>y]"},
    {"use {0} of {name}.", "use of.", "[{0}][{name}]"},
    {"{ x }", "x", "[{][}]"},
    {"The word مرحبا is", "The word is", "[مرحبا]"},
    {"مرحبا بالعالم", "", "[مرحبا بالعالم]"},
    {"met Wałęsa.", "met.", "[Wałęsa]"},
    {"👨‍👩‍👧‍👦 🇩🇪 fox", "fox", "[👨‍👩‍👧‍👦 🇩🇪]"},
    {"fox (😀) dog", "fox dog", "[(😀)]"},
    {"fox \"龘\" dog", "fox dog", "[\"龘\"]"},
    {"fox 龘 dog", "fox dog", "[龘]"},
    {"我唔爱你", "我爱你", "{唔}"},
    {"佢爱你", "爱你", "{佢}"},
    {"我爱😀你", "我爱你", "[😀]"},
    {"我爱 😀 你", "我爱你", "[😀]"},
    {"fox 😀 你", "fox 你", "[😀]"},
    {"The \x01 fox", "The fox", "{\x01}"},
    {"The\ufeff fox", "The fox", "{\ufeff}"},
    {"The qu­ick fox", "The quick fox", "{­}"},
    {"５２ foxes", "52 foxes", ""},
    {"我愛你的書", "我爱你的书", ""},
    {"這裡是😀", "这里是", "[😀]"},
    {"佢愛你", "爱你", "{佢}"},
    {"cafe\u0301", "caf\u00e9", ""},
    {"ﬁne 😀", "fine", "[😀]"},
    {"a\u3000b", "a b", ""},
    {"broken \xff text", "broken text", "[\ufffd]"},
    {"<", "", "[<]"},
    {"<<<>>> {{", "", "[<<<>>> {{]"},
    {"fox <b", "fox b", "[<]"},
};

static void test_reading(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof reading / sizeof reading[0]; i++) {
        struct heed_error err = {0};
        struct spelling s = {0};
        char found[256] = "";
        must(spelling_make(&s, vocab, reading[i].text, false, &err), &err);
        assert_string_equal(s.read, reading[i].read);
        assert_true(spells(vocab, s.read));
        for (int k = 0; k < s.n; k++) {
            assert_true(s.v[k].at <= strlen(s.read));
            size_t n = strlen(found);
            snprintf(found + n, sizeof found - n, "%c%.*s%c", s.v[k].copied ? '[' : '{',
                     (int)s.v[k].where.len, s.text + s.v[k].where.at, s.v[k].copied ? ']' : '}');
        }
        assert_string_equal(found, reading[i].stretches);
        for (size_t k = 0; s.read[k]; k++) assert_true(s.origin[k] <= s.origin[k + 1]);
        assert_int_equal(s.origin[strlen(s.read)], strlen(s.text));
        spelling_release(&s);
    }
}

/* ---- where it goes ---- */

static char *repeated(const char *part, size_t times)
{
    size_t len = strlen(part);
    char *text = malloc(len * times + 1);
    for (size_t i = 0; i < times; i++) memcpy(text + i * len, part, len);
    text[len * times] = '\0';
    return text;
}

/* link: for each word of the translation a digit, the place of the word of `read` it comes from, or
 * a dash. */
static const struct {
    const char *text, *translation, *link, *want;
} restoring[] = {
    {"The fox 😀!", "Der Fuchs!", "012", "Der Fuchs 😀!"},
    {"The fox 😀!", "Fuchs der!", "102", "Fuchs der 😀!"},
    {"The 😀 fox jumps", "springt Fuchs der", "210", "springt Fuchs der 😀"},
    {"😀 The fox", "Der Fuchs", "01", "😀 Der Fuchs"},
    {"The fox😀", "Der Fuchs", "01", "Der Fuchs😀"},
    {"a <b>fox</b> jumps", "ein Fuchs springt", "012", "ein <b>Fuchs</b> springt"},
    {"a <b>fox</b> jumps", "springt ein Fuchs", "201", "springt ein <b>Fuchs</b>"},
    {"我的<b>书</b>。", "my book.", "012", "my <b>book</b>."},
    {"我的😀书。", "my book.", "012", "my 😀 book."},
    {"我😀的书。", "my own book.", "0012", "my 😀 own book."},
    {"The 😀 fox <b>", "Der Fuchs", "01", "Der 😀 Fuchs <b>"},
    {"The 😀 fox", "Der Fuchs", "--", "Der Fuchs 😀"},
    {"The fox met Wałęsa.", "Der Fuchs traf es.", "01233", "Der Fuchs traf Wałęsa es."},
    {"The 😀 fox ☃ jumps", "Fuchs", "1", "😀 Fuchs ☃"},
    {"The fox jumps 😀 over", "Der Fuchs", "0-", "Der 😀 Fuchs"},
    {"😀 ☃", "", "", "😀 ☃"},
};

static void test_restoring(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof restoring / sizeof restoring[0]; i++) {
        struct heed_error err = {0};
        struct spelling s = {0};
        struct spans words[2] = {0};
        int *link;
        struct heed_result r = {.text = strdup(restoring[i].translation),
                                .len = strlen(restoring[i].translation)};
        must(spelling_make(&s, vocab, restoring[i].text, false, &err), &err);
        must(words_split(&words[0], s.read, strlen(s.read), &err), &err);
        must(words_split(&words[1], r.text, r.len, &err), &err);
        struct heed_alignment *a = alignment_make(words, &link, &err), *whole = NULL;
        assert_int_equal(words[1].n, strlen(restoring[i].link));
        for (size_t k = 0; k < words[1].n; k++)
            link[k] = restoring[i].link[k] == '-' ? -1 : restoring[i].link[k] - '0';
        must(restore_text(&r, &s, a, &(struct heed_request){0}, &whole, &err), &err);
        assert_string_equal(r.text, restoring[i].want);
        assert_int_equal(r.len, strlen(r.text));
        assert_int_equal(r.flags, HEED_FLAG_UNSPELLED);
        assert_int_equal(r.copied_n, s.n);
        /* copied words are linked to themselves, and the links of the others stay */
        for (int k = 0; k < whole->targets; k++) {
            const struct heed_span *t = &whole->target[k];
            if (whole->link[k] < 0) continue;
            const struct heed_span *u = &whole->source[whole->link[k]];
            char *word = strndup(r.text + t->at, t->len);
            bool spelled = spells(vocab, word);
            free(word);
            if (spelled) continue;
            assert_int_equal(t->len, u->len);
            assert_memory_equal(r.text + t->at, s.text + u->at, t->len);
        }
        strings_release(&(struct strings){(char **)r.copied, r.copied_n});
        free((char *)r.text);
        free(a);
        free(whole);
        free(words[0].v);
        free(words[1].v);
        spelling_release(&s);
    }
}

/* The time for a stretch does not grow with the length of the text, even where hardly any word has
 * a link; if all words were searched for each stretch, this would take hours. */
static void test_many_stretches(void **state)
{
    (void)state;
    enum { STRETCHES = 20000 };
    struct heed_error err = {0};
    struct spelling s = {0};
    struct spans words[2] = {0};
    char *text = repeated("The 😀 ", STRETCHES);
    int *link;
    must(spelling_make(&s, vocab, text, false, &err), &err);
    assert_int_equal(s.n, STRETCHES);
    struct heed_result r = {.text = strdup(s.read), .len = strlen(s.read)};
    must(words_split(&words[0], r.text, r.len, &err), &err);
    must(words_split(&words[1], r.text, r.len, &err), &err);
    struct heed_alignment *a = alignment_make(words, &link, &err);
    link[STRETCHES - 1] = STRETCHES - 1;
    must(restore_text(&r, &s, a, &(struct heed_request){0}, NULL, &err), &err);
    assert_int_equal(r.copied_n, STRETCHES);
    assert_int_equal(r.len, strlen(text) - 1); /* without the last space */
    strings_release(&(struct strings){(char **)r.copied, r.copied_n});
    free((char *)r.text);
    free(a);
    free(words[0].v);
    free(words[1].v);
    spelling_release(&s);
    free(text);
}

/* ---- bytes that the model makes up ---- */

static void test_made_up(void **state)
{
    (void)state;
    static const char made[] = "The 😀 fox \xf0\x9f jumps ☃";
    struct heed_error err = {0};
    struct heed_request request = {.text = "The fox"};
    struct pieces p = {0};
    must(pieces_fill(&p, vocab, 40, &request, &err), &err);
    struct heed_ids *ids = &p.out[0].ids;
    must(heed_encode(vocab, made, strlen(made), ids, &err), &err);
    p.out[0].token_score = calloc(ids->n + 1, sizeof(float));
    struct target x = {0};
    must(target_make(&x, &p, vocab, 0, 0, &err), &err);
    assert_string_equal(x.text, "The fox jumps");
    assert_int_equal(x.len, strlen(x.text));
    assert_int_equal(x.ids.n, ids->n);
    assert_int_equal(x.end[ids->n - 1], x.len);
    for (size_t i = 1; i < ids->n; i++) assert_true(x.end[i - 1] <= x.end[i]);
    assert_int_equal(x.left_out.n, 3);
    assert_string_equal(x.left_out.v[0], "😀");
    target_release(&x);
    /* bytes that a constraint asks for are not left out */
    request.required = (const char *[]){"so 😀"}, request.required_n = 1;
    struct heed_result r = {0};
    int found;
    must(text_join(&p, vocab, &r, &found, &err), &err);
    assert_string_equal(r.text, "The 😀 fox jumps");
    assert_int_equal(r.flags & HEED_FLAG_UNSPELLED, HEED_FLAG_UNSPELLED);
    strings_release(&(struct strings){(char **)r.left_out, r.left_out_n});
    free((char *)r.text);
    free((int32_t *)r.id);
    free((float *)r.token_logp);
    pieces_release(&p);
}

/* ---- sessions ---- */

static struct heed_session *open_session(void)
{
    struct heed_error err = {0};
    struct heed_session *s = heed_session_open(model, NULL, &err);
    must(s ? HEED_OK : err.status, &err);
    return s;
}

static const struct heed_answer *translate(struct heed_session *s,
                                           const struct heed_request *request, int n)
{
    struct heed_error err = {0};
    const struct heed_answer *out = NULL;
    must(heed_translate(s, request, n, &out, &err), &err);
    return out;
}

/* A random text of parts that the vocabulary can and cannot spell. */
static void make_text(char *text, size_t size, uint64_t seed)
{
    static const char *const part[] = {"Number",  " ",
                                       "7",       ".",
                                       "fox",     "😀",
                                       "<b>",     "</b>",
                                       "مرحبا",   "我",
                                       "龘",      "{0}",
                                       "\\",      "!",
                                       "(",       ")",
                                       "\"",      "\t",
                                       "\u3000",  "２",
                                       "e\u0301", "👨‍👩‍👧",
                                       "🇩🇪",      "\x01",
                                       "\xff",    "It goes. ",
                                       "<",       ">",
                                       " ",       " ",
                                       " ",       "Wałęsa",
                                       "Zahl"};
    size_t n = random_below(&seed, 30);
    *text = '\0';
    for (size_t i = 0; i < n; i++) {
        const char *next = part[random_below(&seed, sizeof part / sizeof part[0])];
        if (strlen(text) + strlen(next) < size) strcat(text, next);
    }
}

/* Every text by itself; every result is UTF-8 and has what it says was copied. */
static void test_any_text(void **state)
{
    (void)state;
    enum { TEXTS = 200 };
    static char text[TEXTS][512];
    static const struct heed_translate_options plain = {.beam = 4, .nbest = 2};
    static const struct heed_translate_options linked = {.beam = 4, .nbest = 2, .align = true};
    struct heed_request request[TEXTS], unlinked;
    struct heed_session *s = open_session(), *alone = open_session();
    for (int i = 0; i < TEXTS; i++) {
        make_text(text[i], sizeof text[i], (uint64_t)i + 1);
        request[i] = (struct heed_request){.text = text[i], .options = &linked};
    }
    const struct heed_answer *out = translate(s, request, TEXTS);
    for (int i = 0; i < TEXTS; i++) {
        unlinked = (struct heed_request){.text = text[i], .options = &plain};
        const struct heed_answer *one = translate(alone, &unlinked, 1);
        assert_int_equal(out[i].n, one->n);
        for (int k = 0; k < one->n; k++) {
            const struct heed_result *r = &out[i].result[k];
            assert_true(r->score == one->result[k].score);
            assert_string_equal(r->text, one->result[k].text);
            assert_true(utf8_valid(r->text, r->len));
            assert_int_equal(!r->copied_n && !r->left_out_n, !(r->flags & HEED_FLAG_UNSPELLED));
            for (int j = 0; j < r->copied_n; j++) assert_non_null(strstr(r->text, r->copied[j]));
        }
        const struct heed_alignment *a = out[i].result->alignment;
        assert_int_equal(!a, !utf8_valid(text[i], strlen(text[i])));
        for (int k = 0; a && k < a->targets; k++) {
            assert_in_range(a->link[k] + 1, 0, a->sources);
            assert_true(a->target[k].at + a->target[k].len <= out[i].result->len);
        }
        for (int k = 0; a && k < a->sources; k++)
            assert_true(a->source[k].at + a->source[k].len <= strlen(text[i]));
    }
    heed_session_free(s);
    heed_session_free(alone);
}

/* The part that the vocabulary can spell is translated as if the rest were not there. */
static void test_same(void **state)
{
    (void)state;
    struct heed_session *s = open_session();
    const struct heed_request request[] = {{.text = "Number 77 comes. It goes!"},
                                           {.text = "😀 Number 77 comes. It goes!"},
                                           {.text = "Number 77 comes. It goes! ☃"},
                                           {.text = "☃ <b>"}};
    char want[512];
    const struct heed_answer *out = translate(s, request, 4);
    const struct heed_result *first = out[0].result;
    assert_int_equal(first->flags & HEED_FLAG_UNSPELLED, 0);
    snprintf(want, sizeof want, "😀 %s", first->text);
    assert_string_equal(out[1].result->text, want);
    snprintf(want, sizeof want, "%s ☃", first->text);
    assert_string_equal(out[2].result->text, want);
    for (int i = 1; i < 3; i++) {
        const struct heed_result *r = out[i].result;
        assert_true(r->score == first->score && r->tokens == first->tokens);
        assert_memory_equal(r->id, first->id, (size_t)first->tokens * sizeof *first->id);
        assert_int_equal(r->copied_n, 1);
    }
    assert_string_equal(out[3].result->text, "☃ <b>");
    assert_int_equal(out[3].result->tokens, 0);
    heed_session_free(s);
}

/* A translation that is given back has the same score; what cannot be spelled does not count. */
static void test_scores(void **state)
{
    (void)state;
    struct heed_session *s = open_session();
    struct heed_request request = {.text = "Number 77 😀 comes. It goes!"};
    const struct heed_result *r = translate(s, &request, 1)->result;
    char *found = strdup(r->text);
    float score = r->score;
    assert_non_null(strstr(found, "😀"));
    request.given = found;
    r = translate(s, &request, 1)->result;
    assert_true(r->score == score);
    assert_int_equal(r->copied_n, 0);
    assert_int_equal(r->left_out_n, 2);
    assert_string_equal(r->left_out[1], "😀");
    free(found);
    heed_session_free(s);
}

static void test_constraints(void **state)
{
    (void)state;
    struct heed_session *s = open_session();
    const struct heed_request request[] = {
        {.text = "Number 77 ☃ comes.", .prefix = "😀 Die"},
        {.text = "Number 77 comes.", .required = (const char *[]){"<b>"}, .required_n = 1},
        {.text = "Number 77 ☃ comes. ☀", .banned = (const char *[]){"☃"}, .banned_n = 1},
    };
    const struct heed_answer *out = translate(s, request, 3);
    assert_int_equal(strncmp(out[0].result->text, "😀 Die", strlen("😀 Die")), 0);
    assert_non_null(strstr(out[0].result->text, "☃"));
    assert_non_null(strstr(out[1].result->text, "<b>"));
    assert_null(strstr(out[2].result->text, "☃"));
    assert_non_null(strstr(out[2].result->text, "☀"));
    assert_int_equal(out[2].result->left_out_n, 1);
    assert_string_equal(out[2].result->left_out[0], "☃");
    heed_session_free(s);
}

/* The attention to what was read. */
static void test_attention(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct heed_session *s = open_session();
    struct heed_attention *a = NULL;
    struct heed_request request = {.text = "Number 😀 77"};
    must(heed_attention_of(s, &request, &a, &err), &err);
    const struct heed_attention_map *cross = &a->map[HEED_USE_CROSS];
    for (int i = 0; i < cross->keys; i++) assert_null(strstr(cross->key[i], "<0x"));
    heed_attention_free(a);
    request.text = "😀";
    assert_int_equal(heed_attention_of(s, &request, &a, &err), HEED_EARG);
    assert_non_null(strstr(err.text, "spell"));
    request.given = "Zahl";
    assert_int_equal(heed_attention_of(s, &request, &a, &err), HEED_EARG);
    request = (struct heed_request){.text = "Number 77", .given = "😀"};
    must(heed_attention_of(s, &request, &a, &err), &err);
    assert_int_equal(a->map[HEED_USE_CROSS].queries, 1);
    heed_attention_free(a);
    heed_session_free(s);
}

/* A long text with something between and inside its sentences. */
static void test_long_text(void **state)
{
    (void)state;
    struct heed_session *s = open_session();
    struct heed_translate_options o = heed_translate_defaults();
    o.align = true;
    char text[4096] = "☀ ";
    for (int i = 0; i < 12; i++) strcat(text, "Number 123 😀 comes to me. ☃ ");
    const struct heed_request request = {.text = text, .options = &o};
    const struct heed_result *r = translate(s, &request, 1)->result;
    assert_int_equal(r->copied_n, 25);
    int smiles = 0;
    for (const char *at = r->text; (at = strstr(at, "😀")); at++) smiles++;
    assert_int_equal(smiles, 12);
    assert_int_equal(strncmp(r->text, "☀ ", strlen("☀ ")), 0);
    assert_non_null(r->alignment);
    heed_session_free(s);
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vocabularies), cmocka_unit_test(test_reading),
        cmocka_unit_test(test_restoring),    cmocka_unit_test(test_many_stretches),
        cmocka_unit_test(test_made_up),      cmocka_unit_test(test_any_text),
        cmocka_unit_test(test_same),         cmocka_unit_test(test_scores),
        cmocka_unit_test(test_constraints),  cmocka_unit_test(test_attention),
        cmocka_unit_test(test_long_text),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
