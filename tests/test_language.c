/*
 * test_language.c - the language of a text: sentences, greetings, names in another script, and
 * texts that say nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "heed.h"

enum { KNOWN_MAX = 64 };

static const char *const EUROPE[] = {"en", "de", "fr", "es", "it", "pt", "nl", "sv", "da", "nb",
                                     "fi", "pl", "cs", "sk", "hu", "ro", "tr", "vi", "id", "hr",
                                     "sl", "et", "lt", "lv", "ca", "ru", "uk", "bg", "sr", "mk"};
static const char *const WORLD[] = {"en", "de", "zh", "zh-TW", "ja", "ko", "ar", "fa", "ur", "el",
                                    "he", "hi", "mr", "ne",    "th", "ka", "hy", "ta", "ru"};
static const char *const THREE[] = {"en", "de", "zh"};
#define COUNT(list) (int)(sizeof(list) / sizeof *(list))

/* The likeliest of the languages. Checks that all of them are there, with confidences in order. */
static struct heed_detection detect(const char *text, const char *const *known, int n)
{
    struct heed_detection out[KNOWN_MAX];
    float sum = 0;
    assert_int_equal(heed_detect_language(text, known, n, out), n);
    for (int i = 0; i < n; i++) {
        int times = 0;
        for (int k = 0; k < n; k++) times += out[k].language == known[i];
        assert_int_equal(times, 1);
        assert_true(out[i].confidence >= 0 && (!i || out[i].confidence <= out[i - 1].confidence));
        sum += out[i].confidence;
    }
    assert_true(sum <= 1.0001f);
    return out[0];
}

static void expect(const char *language, const char *text, const char *const *known, int n)
{
    struct heed_detection found = detect(text, known, n);
    if (strcmp(found.language, language) || found.confidence < 0.4f)
        fail_msg("\"%s\" is %s with confidence %.2f, expected %s", text, found.language,
                 (double)found.confidence, language);
}

struct line {
    const char *language, *text;
};

static void test_europe(void **state)
{
    (void)state;
    static const struct line line[] = {
        {"en", "The weather was so bad that nobody wanted to leave the house."},
        {"de", "Das Wetter war so schlecht, dass niemand das Haus verlassen wollte."},
        {"fr", "Il faisait si mauvais que personne ne voulait sortir de la maison."},
        {"es", "Hacía tan mal tiempo que nadie quería salir de la casa."},
        {"it", "Il tempo era così brutto che nessuno voleva uscire di casa."},
        {"pt", "O tempo estava tão ruim que ninguém queria sair de casa."},
        {"nl", "Het weer was zo slecht dat niemand het huis wilde verlaten."},
        {"sv", "Vädret var så dåligt att ingen ville lämna huset."},
        {"da", "Jeg ved ikke, hvad de vil have os til at gøre uden hjælp."},
        {"nb", "Jeg vet ikke hva de vil at vi skal gjøre uten hjelp."},
        {"fi", "Sää oli niin huono, että kukaan ei halunnut lähteä talosta."},
        {"pl", "Pogoda była tak zła, że nikt nie chciał wychodzić z domu."},
        {"cs", "Počasí bylo tak špatné, že nikdo nechtěl opustit dům."},
        {"sk", "Počasie bolo také zlé, že nikto nechcel opustiť dom, pretože pršalo."},
        {"hu", "Az idő olyan rossz volt, hogy senki sem akarta elhagyni a házat."},
        {"ro", "Vremea era atât de rea încât nimeni nu voia să iasă din casă."},
        {"tr", "Hava o kadar kötüydü ki kimse evden çıkmak istemedi."},
        {"vi", "Thời tiết xấu đến mức không ai muốn ra khỏi nhà."},
        {"id", "Cuacanya sangat buruk sehingga tidak ada yang mau keluar rumah."},
        {"hr", "Vrijeme je bilo tako loše da nitko nije htio izaći iz kuće."},
        {"sl", "Vreme je bilo tako slabo, da nihče ni hotel zapustiti hiše."},
        {"et", "Ilm oli nii halb, et keegi ei tahtnud majast välja minna."},
        {"lt", "Oras buvo toks blogas, kad niekas nenorėjo išeiti iš namų."},
        {"lv", "Laiks bija tik slikts, ka neviens negribēja iziet no mājas."},
        {"ca", "Feia tan mal temps que ningú no volia sortir de casa amb els nens."},
        {"ru", "Погода была такой плохой, что никто не хотел выходить из дома."},
        {"uk", "Погода була такою поганою, що ніхто не хотів виходити з дому."},
        {"bg", "Времето беше толкова лошо, че никой не искаше да излезе от къщата."},
        {"sr", "Време је било тако лоше да нико није хтео да изађе из куће."},
        {"mk", "Времето беше толку лошо што никој не сакаше да излезе од куќата."},
    };
    for (int i = 0; i < COUNT(line); i++)
        expect(line[i].language, line[i].text, EUROPE, COUNT(EUROPE));
}

static void test_world(void **state)
{
    (void)state;
    static const struct line line[] = {
        {"zh", "天气太糟糕了，没有人想出门。"},
        {"zh-TW", "天氣太糟糕了，沒有人想出門，這是為什麼呢？"},
        {"ja", "天気がとても悪かったので、誰も家を出たがらなかった。"},
        {"ja", "使い方を表示して終了する"},
        {"ja", "カタカナ"},
        {"ko", "날씨가 너무 나빠서 아무도 집을 나가고 싶어하지 않았다."},
        {"ar", "كان الطقس سيئا جدا لدرجة أن لا أحد أراد مغادرة المنزل."},
        {"fa", "هوا آنقدر بد بود که هیچ کس نمی خواست از خانه بیرون برود."},
        {"ur", "موسم اتنا خراب تھا کہ کوئی بھی گھر سے نکلنا نہیں چاہتا تھا۔"},
        {"el", "Καλημέρα"},
        {"he", "שלום"},
        {"hi", "मौसम इतना खराब था कि कोई भी घर से निकलना नहीं चाहता था।"},
        {"mr", "हवामान इतके खराब होते की कोणीही घराबाहेर पडू इच्छित नव्हते आणि ते आहे."},
        {"ne", "मौसम यति खराब थियो कि कोही पनि घर छोड्न चाहँदैनथ्यो र त्यो छ।"},
        {"th", "สวัสดีครับ"},
        {"ka", "გამარჯობა"},
        {"hy", "Բարեւ"},
        {"ta", "வணக்கம்"},
        {"ru", "Привет, мир"},
    };
    for (int i = 0; i < COUNT(line); i++)
        expect(line[i].language, line[i].text, WORLD, COUNT(WORLD));
}

/* A word or two, among few languages; and names in Latin letters inside Chinese. */
static void test_short(void **state)
{
    (void)state;
    static const struct line line[] = {
        {"de", "Hallo"},
        {"de", "Guten Morgen"},
        {"de", "DANKE!"},
        {"de", "Straße"},
        {"zh", "你好"},
        {"zh", "東京"},
        {"zh", "我喜欢用 Python 编程"},
        {"zh", "让Bob煮。"},
        {"en", "Hello"},
        {"en", "Good night."},
        {"en", "I don't know."},
        {"en", "The capital 北京 is large, and many people live there."},
        {"de", "Ich weiß nicht."},
    };
    for (int i = 0; i < COUNT(line); i++)
        expect(line[i].language, line[i].text, THREE, COUNT(THREE));
}

/* There is nothing to go by, or it is none of the languages. */
static void test_nothing(void **state)
{
    (void)state;
    static const char *const text[] = {"",         " \t\n", "1234 + 56.7", "!?…",
                                       "\xff\xfe", "🙂",  "Привет"};
    for (int i = 0; i < COUNT(text); i++)
        assert_true(detect(text[i], THREE, COUNT(THREE)).confidence < 0.05f);
    assert_true(detect("Das Haus", (const char *[]){"x-y-z", "", "??"}, 3).confidence <= 1);
    assert_int_equal(heed_detect_language(NULL, THREE, 3, NULL), 0);
    assert_int_equal(
        heed_detect_language("a", (const char *[]){"de", NULL}, 2, (struct heed_detection[2]){{0}}),
        0);
    assert_int_equal(heed_detect_language("a", THREE, 0, (struct heed_detection[1]){{0}}), 0);
}

/* A longer text is no less certain, and a very long one is not read to its end. */
static void test_long(void **state)
{
    (void)state;
    static char text[1 << 20];
    for (size_t n = 0; n + 64 < sizeof text; n += strlen(text + n))
        strcpy(text + n, "Niemand wollte das Haus verlassen, weil es regnete. ");
    assert_string_equal(detect(text, EUROPE, COUNT(EUROPE)).language, "de");
    assert_true(detect(text, EUROPE, COUNT(EUROPE)).confidence > 0.95f);
    memset(text, 'x', sizeof text - 1);
    detect(text, EUROPE, COUNT(EUROPE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_europe),  cmocka_unit_test(test_world), cmocka_unit_test(test_short),
        cmocka_unit_test(test_nothing), cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
