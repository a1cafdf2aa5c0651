/*
 * locale.h - numbers in files have a decimal point in every locale.
 *
 * printf and strtod follow the locale: after setlocale(LC_ALL, "de_DE.UTF-8") 0.5 is written and
 * read as 0,5. Code that writes or reads numbers in a file calls c_locale_enter before and
 * c_locale_leave after, which change the locale of the calling thread alone.
 */
#ifndef HEED_BASE_LOCALE_H
#define HEED_BASE_LOCALE_H
#include <locale.h>

struct c_locale {
    locale_t c, before;
};

static inline struct c_locale c_locale_enter(void)
{
    struct c_locale l = {.c = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    l.before = uselocale(l.c); /* NULL, where memory is out, leaves the locale as it is */
    return l;
}

static inline void c_locale_leave(struct c_locale l)
{
    uselocale(l.before);
    if (l.c) freelocale(l.c);
}

#endif
