/*
 * test_safetensors.c - tensors survive the round trip bit for bit; every kind of wrong header gets
 * its own error; damaged files never crash the reader.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "base/random.h"
#include "place.h"
#include "store/crc.h"
#include "store/safetensors.h"

#define assert_says(err, words)                                                                    \
    do {                                                                                           \
        if (!strstr((err).text, words))                                                            \
            fail_msg("the sentence \"%s\" lacks \"%s\"", (err).text, words);                       \
    } while (0)

/* Sets the path of the place to that of the file, for all tests. */
static int setup(void **state)
{
    if (place_make(state)) return -1;
    at(*state, "model.safetensors");
    return 0;
}

static const float MATRIX[6] = {1, -2, 3.5f, 0, 5e-20f, 6};
static const uint16_t HALVES[3] = {0x3f80, 0xbf80, 0x4000};
static const double WIDE[2] = {0.1, -1e300};

/* The odd number of BF16 elements leaves the F64 behind it unaligned. */
static const struct tensor SAMPLE[] = {
    {"encoder.0.self.wq", TYPE_F32, 2, {2, 3}, MATRIX, sizeof MATRIX},
    {"half", TYPE_BF16, 1, {3}, HALVES, sizeof HALVES},
    {"\xe5\xae\xbd \"quoted\"", TYPE_F64, 2, {2, 1}, WIDE, sizeof WIDE},
    {"empty", TYPE_F32, 2, {0, 7}, NULL, 0},
};

enum { SAMPLES = sizeof SAMPLE / sizeof *SAMPLE };

static void test_round_trip(void **state)
{
    struct place *p = *state;
    struct heed_error err;
    struct safetensors *s;
    assert_int_equal(safetensors_write(p->path, SAMPLE, SAMPLES, &err), HEED_OK);
    assert_int_equal(safetensors_open(&s, p->path, &err), HEED_OK);
    assert_int_equal(safetensors_count(s), SAMPLES);
    for (int i = 0; i < SAMPLES; i++) {
        const struct tensor *t = safetensors_at(s, i);
        assert_string_equal(t->name, SAMPLE[i].name);
        assert_int_equal(t->type, SAMPLE[i].type);
        assert_int_equal(t->dims, SAMPLE[i].dims);
        assert_int_equal(t->shape[0], SAMPLE[i].shape[0]);
        assert_int_equal(t->shape[1], SAMPLE[i].shape[1]);
        assert_int_equal(t->bytes, SAMPLE[i].bytes);
        assert_ptr_equal(safetensors_find(s, SAMPLE[i].name), t);
        if (t->bytes == 0) continue;
        assert_int_equal((uintptr_t)t->data % type_size(t->type), 0);
        assert_memory_equal(t->data, SAMPLE[i].data, t->bytes);
    }
    assert_null(safetensors_find(s, "none"));
    assert_null(safetensors_find(s, "__metadata__"));
    assert_int_equal((uintptr_t)safetensors_at(s, 0)->data % 64, 0);
    safetensors_free(s);
    safetensors_free(NULL);
}

static void test_no_tensors(void **state)
{
    struct place *p = *state;
    struct heed_error err;
    struct safetensors *s;
    assert_int_equal(safetensors_write(p->path, NULL, 0, &err), HEED_OK);
    assert_int_equal(safetensors_open(&s, p->path, &err), HEED_OK);
    assert_int_equal(safetensors_count(s), 0);
    safetensors_free(s);
}

/* Compares with the expected bytes, because writer and reader could change the format together. */
static void test_layout(void **state)
{
    struct place *p = *state;
    struct heed_error err;
    char *data;
    size_t len;
    assert_int_equal(safetensors_write(p->path, SAMPLE, 2, &err), HEED_OK);
    assert_int_equal(file_read(p->path, 1 << 20, &data, &len, &err), HEED_OK);
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"heed\",\"crc32\":\"dfb03b60\"},"
        "\"encoder.0.self.wq\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"half\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[24,30]}}";
    assert_memory_equal(data, "\xb8\0\0\0\0\0\0\0", 8);
    assert_memory_equal(data + 8, header, strlen(header));
    assert_int_equal(strspn(data + 8 + strlen(header), " "), 0xb8 - strlen(header));
    assert_int_equal(len, 8 + 0xb8 + 30);
    assert_memory_equal(data + 8 + 0xb8, MATRIX, 24);
    assert_memory_equal(data + 8 + 0xb8 + 24, HALVES, 6);
    free(data);
}

/* Writes length, header and data as given. */
static void put_raw(const char *path, uint64_t len, const char *header, const void *data,
                    size_t bytes)
{
    struct heed_error err;
    struct file_part part[] = {{&len, 8}, {header, strlen(header)}, {data, bytes}};
    assert_int_equal(file_write(path, part, 3, &err), HEED_OK);
}

/* A header of odd length, no metadata, tensors listed in another order than they lie. */
static void test_foreign_file(void **state)
{
    struct place *p = *state;
    struct heed_error err;
    struct safetensors *s;
    const char *header =
        "{\"b\": {\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[8,16], \"x\":0},"
        " \"a\": {\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    for (size_t pad = 0; pad < 8; pad++) {
        char padded[200];
        snprintf(padded, sizeof padded, "%s%*s", header, (int)pad, "");
        const float a[2] = {1.5f, -2};
        const double b = 0.1;
        char data[16];
        memcpy(data, a, 8);
        memcpy(data + 8, &b, 8);
        put_raw(p->path, strlen(padded), padded, data, 16);
        assert_int_equal(safetensors_open(&s, p->path, &err), HEED_OK);
        assert_string_equal(safetensors_at(s, 0)->name, "a");
        const struct tensor *t = safetensors_find(s, "b");
        assert_int_equal((uintptr_t)t->data % 8, 0);
        assert_true(*(const double *)t->data == 0.1);
        const float *read = safetensors_find(s, "a")->data;
        assert_int_equal((uintptr_t)read % 4, 0);
        assert_true(read[0] == 1.5f && read[1] == -2);
        safetensors_free(s);
    }
}

#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"

/* Each case is followed by 16 bytes of data. */
static const struct {
    const char *header, *words;
} LIE[] = {
    {"[]", "not a JSON object"},
    {"", "not a JSON object"},
    {" {}", "not a JSON object"},
    {"{\"a\":", "not valid JSON"},
    {"{} x", "not valid JSON"},
    {"{" A "," A "}", "duplicate"},
    {"{\"a\":3}", "tensor a is not a JSON object"},
    {"{}", "16 bytes of data, expected 0"},
    {"{" A "}", "16 bytes of data, expected 8"},
    {"{\"a\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]}}", "tensor a is I64"},
    {"{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,16]}}", "tensor a is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", "0 dimensions"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,16]}}", "0 dimensions"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,2,2],\"data_offsets\":[0,16]}}", "3 dimensions"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,16]}}", "dimension 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,4.0],\"data_offsets\":[0,16]}}", "dimension 1"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,16]}}",
     "too large"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0]}}", "not a pair"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,8,16]}}", "not a pair"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,\"16\"]}}", "not a pair"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4]}}", "not a pair"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,0]}}", "bytes 16 to 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[-16,0]}}", "bytes -16 to 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,20]}}",
     "expected within 0 to 16"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,16]}}",
     "has 16 bytes, expected 12"},
    {"{" A ",\"b\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[4,16]}}", "overlaps"},
    {"{" A ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "overlaps"},
    {"{" A ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[12,16]}}", "hole"},
    {"{\"__metadata__\":[],\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
     "__metadata__ is not a JSON object"},
    {"{\"__metadata__\":{\"n\":1},\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
     "\"n\" of __metadata__ is not a string"},
    {"{\"__metadata__\":{\"crc32\":\"xyz\"},\"a\":{\"dtype\":\"F32\",\"shape\":[4],"
     "\"data_offsets\":[0,16]}}",
     "expected 8 hexadecimal digits"},
    {"{\"__metadata__\":{\"crc32\":\"00000000\"},\"a\":{\"dtype\":\"F32\",\"shape\":[4],"
     "\"data_offsets\":[0,16]}}",
     "is damaged: the CRC-32 of its data is"},
};

static void assert_refused(const char *path, enum heed_status status, const char *words)
{
    struct heed_error err = {0};
    struct safetensors *s = NULL;
    assert_int_equal(safetensors_open(&s, path, &err), status);
    assert_null(s);
    assert_says(err, path);
    assert_says(err, words);
}

static void test_lies(void **state)
{
    struct place *p = *state;
    for (size_t i = 0; i < sizeof LIE / sizeof *LIE; i++) {
        put_raw(p->path, strlen(LIE[i].header), LIE[i].header, "0123456789abcdef", 16);
        assert_refused(p->path, HEED_EFORMAT, LIE[i].words);
    }
}

static void test_not_a_file_of_tensors(void **state)
{
    struct place *p = *state;
    struct heed_error err;
    assert_refused(p->path, HEED_EIO, "No such file");
    assert_refused(p->dir, HEED_EIO, "is a directory, expected a regular file");
    struct file_part part = {"1234567", 7};
    assert_int_equal(file_write(p->path, &part, 1, &err), HEED_OK);
    assert_refused(p->path, HEED_EFORMAT, "7 bytes, expected at least 8");
    put_raw(p->path, UINT64_MAX, "{}", "", 0);
    assert_refused(p->path, HEED_EFORMAT, "18446744073709551615 bytes, expected at most 2");
    put_raw(p->path, 3, "{}", "", 0);
    assert_refused(p->path, HEED_EFORMAT, "3 bytes, expected at most 2");
    put_raw(p->path, 100000001, "{}", "", 0);
    assert_int_equal(truncate(p->path, 200000000), 0);
    assert_refused(p->path, HEED_EFORMAT, "100000001 bytes, expected at most 100000000");
    assert_int_equal(unlink(p->path), 0);
    assert_int_equal(mkfifo(p->path, 0600), 0);
    assert_refused(p->path, HEED_EIO, "is a pipe, expected a regular file");
}

static char *sample_bytes(const char *path, size_t *len)
{
    struct heed_error err;
    char *bytes;
    assert_int_equal(safetensors_write(path, SAMPLE, SAMPLES, &err), HEED_OK);
    assert_int_equal(file_read(path, 1 << 20, &bytes, len, &err), HEED_OK);
    return bytes;
}

/* Whether a file of these bytes is accepted. There are thousands: no fsync, and a new file each
 * time, because some file systems flush one that is cut to nothing and written again. */
static bool opens(const char *path, const char *bytes, size_t len)
{
    unlink(path);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, len, out), len);
    assert_int_equal(fclose(out), 0);
    struct heed_error err = {0};
    struct safetensors *s = NULL;
    if (safetensors_open(&s, path, &err) != HEED_OK) {
        assert_null(s);
        assert_int_equal(strncmp(err.text, path, strlen(path)), 0);
        return false;
    }
    unsigned sum = 0;
    for (int i = 0; i < safetensors_count(s); i++) {
        const struct tensor *t = safetensors_at(s, i);
        for (size_t k = 0; k < t->bytes; k++) sum += ((const unsigned char *)t->data)[k];
    }
    assert_true(sum > 0);
    safetensors_free(s);
    return true;
}

/* A single wrong bit in the data, or any missing tail, is always noticed. */
static void test_every_cut_and_data_bit(void **state)
{
    struct place *p = *state;
    size_t len;
    char *bytes = sample_bytes(p->path, &len);
    for (size_t n = 0; n < len; n++) assert_false(opens(p->path, bytes, n));
    size_t data = 24 + 6 + 16;
    for (size_t bit = 0; bit < data * 8; bit++) {
        char *byte = bytes + len - data + bit / 8;
        *byte ^= (char)(1 << bit % 8);
        assert_false(opens(p->path, bytes, len));
        *byte ^= (char)(1 << bit % 8);
    }
    assert_true(opens(p->path, bytes, len));
    free(bytes);
}

/* The reader survives any bytes; most of the damage is in the header. */
static void test_mutations(void **state)
{
    struct place *p = *state;
    static const char spice[] = "0123456789-{}[]\":,e. ";
    size_t len;
    char *good = sample_bytes(p->path, &len);
    char *bytes = malloc(len);
    uint64_t seed = 1;
    for (int round = 0; round < 4000; round++) {
        memcpy(bytes, good, len);
        for (uint64_t k = random_below(&seed, 3) + 1; k; k--) {
            size_t at = random_below(&seed, len);
            bytes[at] = random_below(&seed, 4) ? spice[random_below(&seed, sizeof spice - 1)]
                                               : (char)random_next(&seed);
        }
        size_t kept = random_below(&seed, 4) ? len : random_below(&seed, len);
        opens(p->path, bytes, kept);
    }
    free(bytes);
    free(good);
}

/* As zlib has it, from any byte on, in any pieces */
static void test_crc(void **state)
{
    (void)state;
    enum { BYTES = 700 };
    unsigned char data[BYTES];
    uint64_t random = 1;
    for (int i = 0; i < BYTES; i++) data[i] = (unsigned char)random_next(&random);
    for (int from = 0; from < 20; from++)
        for (int n = 0; from + n <= BYTES; n++) {
            uint32_t want = (uint32_t)crc32(0, data + from, (uInt)n);
            int cut = n * from / 20;
            assert_int_equal(crc_add(0, data + from, (size_t)n), want);
            assert_int_equal(
                crc_add(crc_add(0, data + from, (size_t)cut), data + from + cut, (size_t)(n - cut)),
                want);
        }
    assert_int_equal(crc_add(7, NULL, 0), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc),
        cmocka_unit_test_setup_teardown(test_round_trip, setup, place_remove),
        cmocka_unit_test_setup_teardown(test_no_tensors, setup, place_remove),
        cmocka_unit_test_setup_teardown(test_layout, setup, place_remove),
        cmocka_unit_test_setup_teardown(test_foreign_file, setup, place_remove),
        cmocka_unit_test_setup_teardown(test_lies, setup, place_remove),
        cmocka_unit_test_setup_teardown(test_not_a_file_of_tensors, setup, place_remove),
        cmocka_unit_test_setup_teardown(test_every_cut_and_data_bit, setup, place_remove),
        cmocka_unit_test_setup_teardown(test_mutations, setup, place_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
