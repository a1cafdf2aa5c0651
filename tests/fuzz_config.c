/*
 * fuzz_config.c - libFuzzer entry: any bytes as a config.json. Either a sentence comes back or a
 * configuration that passes its checks and survives being written and read again.
 */
#include "fuzz.h"
#include "model/config.h"

/* What may stand in a config.json beside the names of the fields and of their kinds. */
static const char *const others[] = {
    "model_type", "heed",  "format", "9223372036854775808", "-2147483649",
    "4294967297", "1e999", "1e-400", "0.99999999999",       "\\u0000",
    "\\ud800",    "true",  "null"};

/* All words, with NULL at the end. */
static const char *const *words(void)
{
    enum { MOST = 256 };
    static const char *word[MOST + 1];
    int n = 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) word[n++] = others[i];
    const struct heed_config_field *f;
    for (int i = 0; (f = heed_config_field_at(i)); i++) {
        must(n < MOST, "there is room for the words");
        word[n++] = f->name;
        for (int k = 0; f->kinds && f->kinds[k] && n < MOST; k++) word[n++] = f->kinds[k];
    }
    return word;
}

/* Before there was a format number. */
static const char format_1[] =
    "{\"model_type\": \"heed\", \"d_model\": 384, \"d_ff\": 1536, \"heads\": 6, "
    "\"encoder_layers\": 6, \"decoder_layers\": 6, \"vocab_size\": 24000, \"max_length\": 256, "
    "\"dropout\": 0.2, \"attention_dropout\": 0.1, \"ff_dropout\": 0.1}";

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    if (!fuzz_begin(argc, argv, words())) return 0;
    static const char *const name[] = {"tiny", "base", "big"};
    fuzz_seed("format-1", format_1, strlen(format_1));
    for (int i = 0; i < 3; i++) {
        struct heed_config c;
        heed_config_preset(&c, name[i], NULL);
        c.vocab_size = 8000;
        char *json = config_format(&c);
        fuzz_seed(name[i], json, strlen(json));
        free(json);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fuzz_file file;
    const char *path = fuzz_file_put(&file, data, size);
    struct heed_error err = {0};
    struct heed_config c, untouched, again;
    memset(&c, 0x5a, sizeof c);
    untouched = c;
    enum heed_status st = config_load(&c, path, &err);
    if (st) {
        must_explain(st, &err);
        must(memcmp(&c, &untouched, sizeof c) == 0, "a failure leaves the result alone");
        must(strstr(err.text, path), "a failure names the file");
        return 0;
    }
    must(config_check(&c, &err) == HEED_OK, "what was read passes the checks");
    char *json = config_format(&c);
    must(json, "what was read can be written");
    must(config_parse(&again, json, strlen(json), "again", &err) == HEED_OK, "and read again");
    must(config_same(&again, &c, "again", &err) == HEED_OK, "and is the same");
    free(json);
    return 0;
}
