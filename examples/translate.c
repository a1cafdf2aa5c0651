/*
 * translate.c - a translator in a page of C.
 *
 *     cc translate.c $(pkg-config --cflags --libs heed) -o translate
 *     ./translate model "A dog runs."     or     ./translate model < test.en
 *
 * Translates its arguments or, without any, each line of standard input. With a model of several
 * languages the text begins with the tag of the one to translate to, ">>de<< A dog runs.", or see
 * heed_translate_options.to.
 */
#include <heed.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const struct heed_error *err)
{
    fprintf(stderr, "translate: %s\n", err->text);
    return EXIT_FAILURE;
}

static int translate(struct heed_session *s, const char *text)
{
    struct heed_error err;
    struct heed_request request = {.text = text};
    const struct heed_answer *out;
    if (heed_translate(s, &request, 1, &out, &err) != HEED_OK) return fail(&err);
    puts(out->result->text);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    if (argc < 2) return fprintf(stderr, "usage: translate MODEL [TEXT...]\n"), 2;
    struct heed_error err;
    struct heed_engine *engine = heed_engine_open("cpu", 0, &err);
    struct heed_model *model =
        engine ? heed_model_load(engine, argv[1], HEED_WEIGHTS_AS_STORED, &err) : NULL;
    /* a session serves one thread; a model serves any number of sessions */
    struct heed_session *session = model ? heed_session_open(model, NULL, &err) : NULL;
    int code = session ? EXIT_SUCCESS : fail(&err);

    for (int i = 2; i < argc && code == EXIT_SUCCESS; i++) code = translate(session, argv[i]);
    char *line = NULL;
    size_t cap = 0;
    while (argc == 2 && code == EXIT_SUCCESS && getline(&line, &cap, stdin) > 0) {
        line[strcspn(line, "\r\n")] = '\0';
        code = translate(session, line);
    }
    free(line);
    heed_session_free(session);
    heed_model_free(model);
    heed_engine_free(engine);
    return code;
}
