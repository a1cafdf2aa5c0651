/*
 * test_assets.c - the page that the program holds in itself: every file that a file of it names is
 * there, with its type and its own ETag, and nothing is in it that the Content-Security-Policy of
 * the server would forbid.
 */
#include "serve/assets.h"

#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NAME = 64, WHOLE_PAGE = 88 << 10 };

/* The files that have been visited, beginning with index.html. */
struct visit {
    char name[32][NAME];
    int n;
    size_t bytes;
};

static char *text_of(const struct asset *a)
{
    char *text = malloc(a->n + 1);
    assert_non_null(text);
    memcpy(text, a->data, a->n);
    text[a->n] = 0;
    assert_int_equal(strlen(text), a->n);
    return text;
}

static void visit(struct visit *v, const char *name)
{
    for (int i = 0; i < v->n; i++) {
        if (strcmp(v->name[i], name) == 0) return;
    }
    assert_true(v->n < 32 && strlen(name) < NAME);
    strcpy(v->name[v->n++], name);
}

/* Visits what the first group of the pattern matches. */
static void visit_all(struct visit *v, const char *text, const char *pattern)
{
    regex_t re;
    regmatch_t m[2];
    assert_int_equal(regcomp(&re, pattern, REG_EXTENDED), 0);
    for (; regexec(&re, text, 2, m, 0) == 0; text += m[0].rm_eo) {
        char name[NAME];
        snprintf(name, sizeof name, "%.*s", (int)(m[1].rm_eo - m[1].rm_so), text + m[1].rm_so);
        visit(v, name);
    }
    regfree(&re);
}

static void refuse(const char *name, const char *text, const char *pattern)
{
    regex_t re;
    regmatch_t m;
    assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_ICASE), 0);
    if (regexec(&re, text, 1, &m, 0) == 0)
        fail_msg("%s has what the policy forbids: %.40s", name, text + m.rm_so);
    regfree(&re);
}

static const char *type_of(const char *name)
{
    const char *end = strrchr(name, '.');
    assert_non_null(end);
    return strcmp(end, ".html") == 0  ? "text/html; charset=utf-8"
           : strcmp(end, ".css") == 0 ? "text/css; charset=utf-8"
           : strcmp(end, ".js") == 0  ? "text/javascript; charset=utf-8"
                                      : "image/svg+xml";
}

static void look_at(struct visit *v, const char *name)
{
    const struct asset *a = asset_find(name);
    if (!a) fail_msg("no file %s", name);
    assert_string_equal(a->name, name);
    assert_string_equal(a->type, type_of(name));
    char *text = text_of(a);
    v->bytes += a->n;
    visit_all(v, text, "\"/web/([^\"]+)\"");
    visit_all(v, text, "from \"\\./([^\"]+)\"");
    refuse(name, text,
           "<style|<script>| style=| on[a-z]+=|javascript:|@import|\\beval\\(|innerHTML");
    regex_t host;
    regmatch_t m;
    assert_int_equal(regcomp(&host, "https?://[^\"' ]+", REG_EXTENDED), 0);
    for (const char *at = text; regexec(&host, at, 1, &m, 0) == 0; at += m.rm_eo)
        if (strncmp(at + m.rm_so, "http://www.w3.org/2000/svg", 26) != 0)
            fail_msg("%s names a host: %.40s", name, at + m.rm_so);
    regfree(&host);
    free(text);
}

static void the_page_is_whole(void **state)
{
    (void)state;
    struct visit v = {0};
    visit(&v, "index.html");
    for (int i = 0; i < v.n; i++) look_at(&v, v.name[i]);
    assert_true(v.n >= 5);
    assert_true(v.bytes < WHOLE_PAGE);
}

static void etags_differ(void **state)
{
    (void)state;
    const char *html = asset_find("index.html")->etag, *css = asset_find("style.css")->etag;
    assert_int_equal(strlen(html), 34);
    assert_true(html[0] == '"' && html[33] == '"');
    assert_string_not_equal(html, css);
}

static void other_names_are_not_found(void **state)
{
    (void)state;
    static const char *const names[] = {"",           "/",           "index",
                                        "INDEX.HTML", "../assets.h", "index.html/"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_null(asset_find(names[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_is_whole),
        cmocka_unit_test(etags_differ),
        cmocka_unit_test(other_names_are_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
