/*
 * languages.c - names and spellings of language codes; see languages.h.
 */
#include "serve/languages.h"

#include <string.h>
#include <strings.h>

/* The languages with a code of two letters that translation models commonly have (ISO 639-1), and
 * the variants that LibreTranslate names. */
static const struct {
    const char *code, *name;
} known[] = {
    {"af", "Afrikaans"},
    {"am", "Amharic"},
    {"ar", "Arabic"},
    {"az", "Azerbaijani"},
    {"be", "Belarusian"},
    {"bg", "Bulgarian"},
    {"bn", "Bengali"},
    {"br", "Breton"},
    {"bs", "Bosnian"},
    {"ca", "Catalan"},
    {"cs", "Czech"},
    {"cy", "Welsh"},
    {"da", "Danish"},
    {"de", "German"},
    {"el", "Greek"},
    {"en", "English"},
    {"eo", "Esperanto"},
    {"es", "Spanish"},
    {"et", "Estonian"},
    {"eu", "Basque"},
    {"fa", "Persian"},
    {"fi", "Finnish"},
    {"fo", "Faroese"},
    {"fr", "French"},
    {"fy", "Western Frisian"},
    {"ga", "Irish"},
    {"gd", "Scottish Gaelic"},
    {"gl", "Galician"},
    {"gu", "Gujarati"},
    {"ha", "Hausa"},
    {"he", "Hebrew"},
    {"hi", "Hindi"},
    {"hr", "Croatian"},
    {"ht", "Haitian Creole"},
    {"hu", "Hungarian"},
    {"hy", "Armenian"},
    {"id", "Indonesian"},
    {"ig", "Igbo"},
    {"is", "Icelandic"},
    {"it", "Italian"},
    {"ja", "Japanese"},
    {"jv", "Javanese"},
    {"ka", "Georgian"},
    {"kk", "Kazakh"},
    {"km", "Khmer"},
    {"kn", "Kannada"},
    {"ko", "Korean"},
    {"ku", "Kurdish"},
    {"ky", "Kyrgyz"},
    {"la", "Latin"},
    {"lb", "Luxembourgish"},
    {"lo", "Lao"},
    {"lt", "Lithuanian"},
    {"lv", "Latvian"},
    {"mg", "Malagasy"},
    {"mi", "Maori"},
    {"mk", "Macedonian"},
    {"ml", "Malayalam"},
    {"mn", "Mongolian"},
    {"mr", "Marathi"},
    {"ms", "Malay"},
    {"mt", "Maltese"},
    {"my", "Burmese"},
    {"nb", "Norwegian"},
    {"ne", "Nepali"},
    {"nl", "Dutch"},
    {"nn", "Norwegian Nynorsk"},
    {"no", "Norwegian"},
    {"oc", "Occitan"},
    {"or", "Odia"},
    {"pa", "Punjabi"},
    {"pb", "Portuguese (Brazil)"},
    {"pl", "Polish"},
    {"ps", "Pashto"},
    {"pt", "Portuguese"},
    {"pt-BR", "Portuguese (Brazil)"},
    {"ro", "Romanian"},
    {"ru", "Russian"},
    {"sd", "Sindhi"},
    {"si", "Sinhala"},
    {"sk", "Slovak"},
    {"sl", "Slovenian"},
    {"so", "Somali"},
    {"sq", "Albanian"},
    {"sr", "Serbian"},
    {"su", "Sundanese"},
    {"sv", "Swedish"},
    {"sw", "Swahili"},
    {"ta", "Tamil"},
    {"te", "Telugu"},
    {"tg", "Tajik"},
    {"th", "Thai"},
    {"tl", "Tagalog"},
    {"tr", "Turkish"},
    {"tt", "Tatar"},
    {"ug", "Uyghur"},
    {"uk", "Ukrainian"},
    {"ur", "Urdu"},
    {"uz", "Uzbek"},
    {"vi", "Vietnamese"},
    {"wo", "Wolof"},
    {"xh", "Xhosa"},
    {"yi", "Yiddish"},
    {"yo", "Yoruba"},
    {"zh", "Chinese"},
    {"zh-Hans", "Chinese (simplified)"},
    {"zh-Hant", "Chinese (traditional)"},
    {"zt", "Chinese (traditional)"},
    {"zu", "Zulu"},
};

/* Two codes for one language: LibreTranslate's models have the second, its clients write the
 * first. */
static const struct {
    const char *written, *code;
} alias[] = {{"zh-Hans", "zh"}, {"zh-CN", "zh"}, {"zh-Hant", "zt"},
             {"zh-TW", "zt"},   {"pt-BR", "pb"}, {"zh", "zh-Hans"}};

const char *language_name(const char *code)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (!strcasecmp(known[i].code, code)) return known[i].name;
    }
    return code;
}

bool language_same(const char *written, const char *code)
{
    if (!strcasecmp(written, code)) return true;
    for (size_t i = 0; i < sizeof alias / sizeof alias[0]; i++) {
        if (!strcasecmp(written, alias[i].written) && !strcasecmp(code, alias[i].code)) return true;
    }
    return false;
}

/* Bytes of a code at the front of a text: two or three lower-case letters. */
static size_t code_length(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz");
    return n == 2 || n == 3 ? n : 0;
}

bool language_pair(const char *name, char from[16], char to[16])
{
    size_t n = code_length(name), m = n && name[n] == '-' ? code_length(name + n + 1) : 0;
    if (!m || name[n + 1 + m]) return false;
    memcpy(from, name, n);
    from[n] = '\0';
    memcpy(to, name + n + 1, m + 1);
    return true;
}
