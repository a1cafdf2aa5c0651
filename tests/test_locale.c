/*
 * test_locale.c - what is written and read does not depend on the locale of the program: not in
 * one where 0.5 is spelt 0,5 either.
 */
#include "text_files.h"

#include <locale.h>

#include "base/file.h"
#include "heed.h"
#include "model/config.h"

/* A locale with a decimal comma, made here where the system has none. */
static bool comma_locale(void)
{
    char command[256];
    if (setlocale(LC_ALL, "de_DE.UTF-8")) return true;
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1",
             folder);
    if (system(command) != 0) return false;
    setenv("LOCPATH", folder, 1);
    return setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
}

/* Leaves the decimal comma on, or skips the test. */
static void expect_comma(void)
{
    char text[8];
    if (!comma_locale()) {
        print_message("no locale with a decimal comma, and localedef cannot make one\n");
        skip();
    }
    snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5");
}

static int c_locale(void **state)
{
    (void)state;
    return setlocale(LC_ALL, "C") ? 0 : -1;
}

static void assert_same_files(const char *a, const char *b)
{
    bool same = false;
    char *data;
    size_t len;
    assert_int_equal(file_read(a, 1 << 20, &data, &len, NULL), HEED_OK);
    assert_int_equal(file_same(b, (struct file_part){data, len}, &same, NULL), HEED_OK);
    assert_true(same);
    free(data);
}

static void train(const char *corpus, const char *out)
{
    struct heed_error err = {0};
    struct heed_tokenizer_options o = {.vocab_size = 300};
    if (heed_tokenizer_train(&corpus, 1, &o, out, &err)) fail_msg("\"%s\"", err.text);
}

static void test_vocabulary(void **state)
{
    (void)state;
    char text[20000] = "";
    for (int i = 0, n = 0; i < 400; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "the line number %d of many words\n", i);
    put_text("corpus", text);
    train(at("corpus"), at("point"));
    expect_comma();
    train(at("corpus"), at("comma"));
    assert_same_files(at("comma"), at("point"));
}

static void test_config(void **state)
{
    (void)state;
    struct heed_config c, back;
    expect_comma();
    assert_int_equal(heed_config_preset(&c, "tiny", NULL), HEED_OK);
    c.vocab_size = 300;
    c.dropout = 0.3f;
    char *text = config_format(&c);
    assert_non_null(strstr(text, "\"dropout\": 0.3"));
    put_text("config.json", text);
    assert_int_equal(config_load(&back, at("config.json"), NULL), HEED_OK);
    assert_memory_equal(&c.dropout, &back.dropout, sizeof c.dropout);
    assert_int_equal(heed_config_set(&c, "dropout", "0.25", NULL), HEED_OK);
    assert_true(c.dropout == 0.25f);
    free(text);
}

static void test_picture(void **state)
{
    (void)state;
    static const char *const token[] = {"a", "b"};
    static const float weight[] = {0.25f, 0.75f, 0.5f, 0.5f};
    const struct heed_attention_map map = {1, 1, 2, 2, token, token, weight};
    const struct heed_attention a = {{map, map, map}, 0};
    static const enum heed_picture kind[] = {HEED_PICTURE_SVG, HEED_PICTURE_JSON,
                                             HEED_PICTURE_HTML};
    const struct heed_attention_view view = {0};
    for (int i = 0; i < 3; i++) {
        char *point, *comma;
        setlocale(LC_ALL, "C");
        assert_int_equal(heed_attention_picture(&a, kind[i], &view, &point, NULL), HEED_OK);
        expect_comma();
        assert_int_equal(heed_attention_picture(&a, kind[i], &view, &comma, NULL), HEED_OK);
        assert_string_equal(comma, point);
        assert_string_equal(localeconv()->decimal_point, ","); /* the program's choice stays */
        free(point);
        free(comma);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_vocabulary, c_locale),
        cmocka_unit_test_teardown(test_config, c_locale),
        cmocka_unit_test_teardown(test_picture, c_locale),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
