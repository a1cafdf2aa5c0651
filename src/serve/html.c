/*
 * html.c - reads HTML; see html.h. No input is an error: what is not markup is text, and a tag or a
 * comment without end goes to the end of the input, as it came.
 */
#define _GNU_SOURCE /* memmem */
#include "serve/html.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve/html_parts.h"

/* A stretch of markup that stays, or a line. */
struct part {
    size_t at, n; /* bytes of the HTML, without a line */
    int line;     /* number of the line; -1: markup */
};

struct html {
    const char *text;
    size_t n;
    struct part *part; /* [parts] */
    int parts, part_cap;
    struct tagged_line *line; /* [lines] */
    int lines, line_cap;
    bool failed; /* memory ran out */
    /* the line that is being read */
    size_t start; /* where it begins in the HTML */
    struct buffer plain;
    struct tag *tag; /* [tags] with room for TAGS_MOST */
    int tags;
    int unclosed; /* elements that should not be translated and have no end */
};

/* ---- tags ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Whether a name is in a list with spaces around each word. */
static bool listed(const char *list, const char *name, size_t n)
{
    char word[24];
    if (n + 2 >= sizeof word) return false;
    word[0] = ' ';
    memcpy(word + 1, name, n);
    strcpy(word + 1 + n, " ");
    return strcasestr(list, word);
}

/* Elements that a line of text does not go across. */
static const char BLOCK[] =
    " address article aside audio blockquote body br button canvas caption col colgroup dd details "
    "dialog dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 "
    "head header hr html iframe legend li link main map math menu meta nav noscript object ol "
    "optgroup option p pre script section select style summary svg table tbody td template "
    "textarea "
    "tfoot th thead title tr ul video ";
/* Elements whose content stays as it is. */
static const char UNTRANSLATED[] =
    " script style textarea pre svg math code kbd samp var tt template ";
/* Elements whose content is text alone: a tag in it is none. */
static const char RAW[] = " script style textarea ";
/* Elements that have no content. */
static const char VOID[] = " area base br col embed hr img input link meta param source track wbr ";

/* Length of the markup at text, which begins with '<'; 0: it is no markup. */
static size_t markup_length(const char *text, size_t n)
{
    if (n >= 4 && !memcmp(text, "<!--", 4)) {
        const char *end = memmem(text + 4, n - 4, "-->", 3);
        return end ? (size_t)(end - text) + 3 : n;
    }
    bool named = n > 1 && (is_letter(text[1]) || (text[1] == '/' && n > 2 && is_letter(text[2])));
    bool other = n > 1 && (text[1] == '!' || text[1] == '?');
    if (!named && !other) return 0;
    char quote = '\0';
    for (size_t i = 1; i < n; i++) {
        if (quote) {
            if (text[i] == quote) quote = '\0';
        } else if (text[i] == '>') {
            return i + 1;
        } else if (named && (text[i] == '"' || text[i] == '\'') && text[i - 1] == '=') {
            quote = text[i];
        }
    }
    return n;
}

static struct tag tag_of(const char *text, size_t n)
{
    struct tag t = {.text = text, .n = n, .partner = -1, .kind = TAG_ALONE};
    size_t at = 1 + (n > 1 && text[1] == '/');
    if (at >= n || !is_letter(text[at])) return t;
    t.name = text + at;
    while (at + t.name_n < n && !is_space(t.name[t.name_n]) && t.name[t.name_n] != '>' &&
           t.name[t.name_n] != '/')
        t.name_n++;
    bool empty = listed(VOID, t.name, t.name_n) || (n > 2 && text[n - 2] == '/');
    t.kind = text[1] == '/' ? TAG_CLOSE : empty ? TAG_ALONE : TAG_OPEN;
    return t;
}

/* Bytes at the front of text before the first of these characters. */
static size_t length_before(const char *text, const char *end, const char *stop)
{
    const char *p = text;
    while (p < end && !strchr(stop, *p)) p++;
    return (size_t)(p - text);
}

/* The value of an attribute of a tag; NULL: it has none. */
static const char *attribute(const struct tag *t, const char *name, size_t *n)
{
    const char *p = t->name + t->name_n, *end = t->text + t->n;
    for (;;) {
        while (p < end && (is_space(*p) || *p == '/')) p++;
        const char *key = p;
        p += length_before(p, end, " \t\n\r\f/>=");
        size_t key_n = (size_t)(p - key);
        while (p < end && is_space(*p)) p++;
        if (p == end || (*p != '=' && key_n == 0)) return NULL;
        if (*p != '=') continue; /* an attribute without a value */
        for (p++; p < end && is_space(*p);) p++;
        bool quoted = p < end && (*p == '"' || *p == '\'');
        char quote[2] = {quoted ? *p++ : '\0'};
        const char *value = p;
        *n = length_before(p, end, quoted ? quote : " \t\n\r\f>");
        p += *n + (quoted && p + *n < end);
        if (key_n == strlen(name) && !strncasecmp(key, name, key_n)) return value;
    }
}

/* Whether a list of words, such as a class, has a word. */
static bool has_word(const char *list, size_t n, const char *word)
{
    for (const char *p = list, *end = list + n; p < end; p++) {
        size_t len = length_before(p, end, " \t\n\r\f");
        if (len == strlen(word) && !strncasecmp(p, word, len)) return true;
        p += len;
    }
    return false;
}

/* Whether the attributes of a tag say that its content is not to be translated. */
static bool forbids_translation(const struct tag *t)
{
    size_t n;
    const char *value = attribute(t, "translate", &n);
    if (value && has_word(value, n, "no")) return true;
    value = attribute(t, "class", &n);
    return value && has_word(value, n, "notranslate");
}

/* Where the element that a tag opens ends, behind its closing tag; 0: nowhere. Elements of the same
 * name may be inside of it; where they are not closed, which sets `unclosed`, the first closing tag
 * ends it. */
static size_t element_end(const char *text, size_t n, const struct tag *t, bool *unclosed)
{
    size_t first = 0;
    int depth = 1;
    *unclosed = false;
    for (const char *p = text, *end = text + n; (p = memchr(p, '<', (size_t)(end - p))); p++) {
        const char *name = p + 1 + (p + 1 < end && p[1] == '/');
        if ((size_t)(end - name) <= t->name_n || strncasecmp(name, t->name, t->name_n) ||
            !strchr(" \t\n\r\f/>", name[t->name_n])) {
            continue;
        }
        size_t behind = (size_t)(p - text) + markup_length(p, (size_t)(end - p));
        depth += name == p + 1 ? 1 : -1;
        if (name == p + 1) continue;
        if (!first) first = behind;
        if (depth == 0 || listed(RAW, t->name, t->name_n)) return behind;
    }
    *unclosed = true;
    return first;
}

/* ---- parts ---- */

static bool grow(void **v, int n, int *cap, size_t size)
{
    if (n < *cap) return true;
    int more = *cap ? *cap * 2 : 16;
    void *grown = realloc(*v, (size_t)more * size);
    if (!grown) return false;
    *v = grown;
    *cap = more;
    return true;
}

static void add_part(struct html *h, struct part p)
{
    if (p.line < 0 && p.n == 0) return;
    if (!grow((void **)&h->part, h->parts, &h->part_cap, sizeof *h->part)) {
        h->failed = true;
    } else {
        h->part[h->parts++] = p;
    }
}

/* Finds the partner of each tag. */
static void match_tags(struct tagged_line *l)
{
    int open[DEPTH_MOST], depth = 0;
    l->nested = true;
    for (int i = 0; i < l->tags && l->nested; i++) {
        struct tag *t = &l->tag[i], *top = depth ? &l->tag[open[depth - 1]] : NULL;
        if (t->kind == TAG_OPEN) {
            l->nested = depth < DEPTH_MOST;
            if (l->nested) open[depth++] = i;
        } else if (t->kind == TAG_CLOSE) {
            l->nested =
                top && top->name_n == t->name_n && !strncasecmp(top->name, t->name, t->name_n);
            if (!l->nested) break;
            t->partner = open[--depth];
            top->partner = i;
        }
    }
    if (depth) l->nested = false;
}

static void add_line(struct html *h)
{
    if (h->plain.n && h->plain.v[h->plain.n - 1] == ' ') h->plain.v[--h->plain.n] = '\0';
    if (!grow((void **)&h->line, h->lines, &h->line_cap, sizeof *h->line)) {
        h->failed = true;
        return;
    }
    struct tagged_line l = {.n = h->plain.n, .tags = h->tags};
    l.text = buffer_take(&h->plain);
    l.tag = malloc((size_t)(h->tags + 1) * sizeof *l.tag);
    h->failed = h->failed || !l.text || !l.tag;
    if (l.tag) memcpy(l.tag, h->tag, (size_t)h->tags * sizeof *l.tag);
    if (l.tag) match_tags(&l);
    h->line[h->lines++] = l;
    add_part(h, (struct part){.line = h->lines - 1});
}

/* Whether a line has anything but spaces, of which some may not be broken (&nbsp;). */
static bool has_words(const struct buffer *plain)
{
    static const char nbsp[] = "\xc2\xa0";
    for (size_t i = 0; i < plain->n;) {
        bool unbroken = plain->n - i >= 2 && !memcmp(plain->v + i, nbsp, 2);
        if (!unbroken && plain->v[i] != ' ') return true;
        i += unbroken ? 2 : 1;
    }
    return false;
}

/* Ends the line that is being read before byte `end` of the HTML. White space around it stays, and
 * where it has no words, all of it does. */
static void end_line(struct html *h, size_t end)
{
    size_t at = h->start, last = end;
    h->failed = h->failed || h->plain.failed;
    if (!has_words(&h->plain)) {
        add_part(h, (struct part){.at = at, .n = end - at, .line = -1});
    } else {
        while (at < end && is_space(h->text[at])) at++;
        while (last > at && is_space(h->text[last - 1])) last--;
        add_part(h, (struct part){.at = h->start, .n = at - h->start, .line = -1});
        add_line(h);
        add_part(h, (struct part){.at = last, .n = end - last, .line = -1});
    }
    buffer_release(&h->plain);
    h->tags = 0;
    h->start = end;
}

/* ---- text ---- */

static const struct {
    const char *name;
    int code;
} entity[] = {
    {"amp", '&'},      {"lt", '<'},       {"gt", '>'},       {"quot", '"'},     {"apos", '\''},
    {"nbsp", 0xa0},    {"copy", 0xa9},    {"reg", 0xae},     {"trade", 0x2122}, {"hellip", 0x2026},
    {"mdash", 0x2014}, {"ndash", 0x2013}, {"lsquo", 0x2018}, {"rsquo", 0x2019}, {"ldquo", 0x201c},
    {"rdquo", 0x201d}, {"bdquo", 0x201e}, {"sbquo", 0x201a}, {"laquo", 0xab},   {"raquo", 0xbb},
    {"bull", 0x2022},  {"middot", 0xb7},  {"euro", 0x20ac},  {"pound", 0xa3},   {"yen", 0xa5},
    {"sect", 0xa7},    {"deg", 0xb0},     {"times", 0xd7},   {"auml", 0xe4},    {"ouml", 0xf6},
    {"uuml", 0xfc},    {"Auml", 0xc4},    {"Ouml", 0xd6},    {"Uuml", 0xdc},    {"szlig", 0xdf},
    {"eacute", 0xe9},  {"egrave", 0xe8},  {"agrave", 0xe0},  {"aacute", 0xe1},  {"ccedil", 0xe7},
    {"iacute", 0xed},  {"oacute", 0xf3},  {"uacute", 0xfa},  {"ntilde", 0xf1},  {"acirc", 0xe2},
    {"ecirc", 0xea},   {"icirc", 0xee},   {"ocirc", 0xf4},   {"ucirc", 0xfb}};

/* The character that n bytes between '&' and ';' mean; 0: unknown. */
static int entity_code(const char *name, size_t n)
{
    if (name[0] == '#') {
        bool hex = n > 1 && (name[1] == 'x' || name[1] == 'X');
        char *end;
        long code = strtol(name + (hex ? 2 : 1), &end, hex ? 16 : 10);
        bool valid = end == name + n && code >= ' ' && code <= 0x10ffff &&
                     !(code >= 0xd800 && code < 0xe000) && !(code >= 0x7f && code < 0xa0);
        return valid ? (int)code : 0;
    }
    for (size_t i = 0; i < sizeof entity / sizeof entity[0]; i++) {
        if (strlen(entity[i].name) == n && !memcmp(entity[i].name, name, n)) return entity[i].code;
    }
    return 0;
}

static void put_code(struct buffer *b, int c)
{
    char utf8[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6) utf8[i] = (char)(0x80 | (c & 0x3f));
    utf8[0] = (char)(lead[n] | c);
    buffer_put(b, utf8, n);
}

/* White space of any length is one space; there is none at the front. */
static void put_space(struct html *h)
{
    if (h->tags && h->tag[h->tags - 1].place == h->plain.n) h->tag[h->tags - 1].spaced = true;
    if (h->plain.n && h->plain.v[h->plain.n - 1] != ' ') buffer_text(&h->plain, " ");
}

static void add_tag(struct html *h, struct tag t)
{
    t.place = h->plain.n;
    h->tag[h->tags++] = t;
}

/* Reads an entity at byte `at`; returns its length. One that is unknown stays as it is, like a tag.
 */
static size_t read_entity(struct html *h, size_t at)
{
    enum { LONGEST = 32 };
    size_t left = h->n - at, most = left < LONGEST ? left : LONGEST;
    const char *end = memchr(h->text + at, ';', most);
    size_t n = end ? (size_t)(end - h->text) - at - 1 : 0;
    bool named =
        n && strspn(h->text + at + 1, "#abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                      "0123456789") == n;
    int code = named ? entity_code(h->text + at + 1, n) : '&';
    if (code) {
        put_code(&h->plain, code);
        return named ? n + 2 : 1;
    }
    add_tag(h, (struct tag){.text = h->text + at, .n = n + 2, .kind = TAG_ALONE, .partner = -1});
    return n + 2;
}

/* ---- reading ---- */

/* Reads the markup of n bytes at `at`; returns how many bytes belong to it. */
static size_t read_markup(struct html *h, size_t at, size_t n)
{
    enum { UNCLOSED_MOST = 16 }; /* searches for an end that is not there are bounded */
    struct tag t = tag_of(h->text + at, n);
    bool kept = t.kind == TAG_OPEN && h->unclosed < UNCLOSED_MOST &&
                (listed(UNTRANSLATED, t.name, t.name_n) || forbids_translation(&t));
    if (kept) {
        bool unclosed;
        size_t content = element_end(h->text + at + n, h->n - at - n, &t, &unclosed);
        h->unclosed += unclosed;
        if (content) {
            n += content;
            t.n = n;
            t.kind = TAG_ALONE;
        }
    }
    bool block = t.name ? listed(BLOCK, t.name, t.name_n) : h->text[at + 1] != '!';
    if (block) {
        end_line(h, at);
        add_part(h, (struct part){.at = at, .n = n, .line = -1});
        h->start = at + n;
    } else {
        add_tag(h, t);
    }
    return n;
}

static void read_all(struct html *h)
{
    for (size_t at = 0; at < h->n;) {
        if (h->tags == TAGS_MOST) end_line(h, at);
        char c = h->text[at];
        size_t n = c == '<' ? markup_length(h->text + at, h->n - at) : 0;
        if (n) {
            at += read_markup(h, at, n);
        } else if (c == '&') {
            at += read_entity(h, at);
        } else if (is_space(c)) {
            put_space(h);
            at++;
        } else {
            buffer_put(&h->plain, &c, 1);
            at++;
        }
    }
    end_line(h, h->n);
}

struct html *html_open(const char *text, size_t n)
{
    struct html *h = calloc(1, sizeof *h);
    if (!h) return NULL;
    h->text = text;
    h->n = n;
    h->tag = malloc(TAGS_MOST * sizeof *h->tag);
    if (h->tag) read_all(h);
    if (h->tag && !h->failed && !h->plain.failed) return h;
    html_free(h);
    return NULL;
}

void html_free(struct html *h)
{
    if (!h) return;
    for (int i = 0; i < h->lines; i++) {
        free(h->line[i].text);
        free(h->line[i].tag);
    }
    buffer_release(&h->plain);
    free(h->tag);
    free(h->line);
    free(h->part);
    free(h);
}

int html_lines(const struct html *h)
{
    return h->lines;
}

const char *html_line(const struct html *h, int i)
{
    return h->line[i].text;
}

bool html_line_has_tags(const struct html *h, int i)
{
    return h->line[i].tags > 0;
}

void html_join(struct buffer *out, const struct html *h, const struct heed_result *const *result)
{
    for (int i = 0; i < h->parts; i++) {
        const struct part *p = &h->part[i];
        if (p->line < 0) {
            buffer_put(out, h->text + p->at, p->n);
        } else if (result[p->line]) {
            html_place(out, &h->line[p->line], result[p->line]);
        }
    }
}
