/*
 * crc.c - the CRC-32 of zlib by carry-less multiplication; see crc.h.
 *
 * A CRC is the remainder of the data, taken as a polynomial, divided by a fixed polynomial P. Where
 * x^n mod P is known, 16 bytes can be multiplied with it and added to the bytes n bits further on
 * without changing the remainder (Gopal et al., Fast CRC Computation Using PCLMULQDQ, 2009). Four
 * lanes of 16 bytes go through the data side by side; at the end they are folded into one lane, of
 * which zlib computes the remainder.
 */
#include "store/crc.h"

#include <zlib.h>

#if defined(__x86_64__)
#include <immintrin.h>

enum { LANE = 16, LANES = 4, STRIDE = LANES * LANE };

/* x^n mod P for the two halves of a lane, bits reflected, to move it by four lanes and by one */
static const uint64_t FOUR_ON[2] = {0x154442bd4, 0x1c6e41596},
                      ONE_ON[2] = {0x1751997d0, 0x0ccaa009e};

#define WITH_PCLMUL __attribute__((target("pclmul,sse4.1")))

WITH_PCLMUL static inline __m128i load(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

/* A lane moved to a later place in the data, as far as `power` says. */
WITH_PCLMUL static inline __m128i moved(__m128i lane, __m128i power)
{
    return _mm_xor_si128(_mm_clmulepi64_si128(lane, power, 0x00),
                         _mm_clmulepi64_si128(lane, power, 0x11));
}

/* The CRC of `bytes` bytes, a multiple of STRIDE and not 0, that follow those of which crc is. */
WITH_PCLMUL static uint32_t fold(uint32_t crc, const unsigned char *data, size_t bytes)
{
    __m128i four = load(FOUR_ON), one = load(ONE_ON), x[LANES];
    unsigned char rest[LANE];
    for (int i = 0; i < LANES; i++) x[i] = load(data + i * LANE);
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)~crc));
    for (size_t at = STRIDE; at < bytes; at += STRIDE)
        for (int i = 0; i < LANES; i++)
            x[i] = _mm_xor_si128(moved(x[i], four), load(data + at + i * LANE));
    for (int i = 1; i < LANES; i++) x[i] = _mm_xor_si128(moved(x[i - 1], one), x[i]);
    _mm_storeu_si128((__m128i *)rest, x[LANES - 1]);
    return (uint32_t)crc32_z(0xffffffff, rest, LANE); /* zlib inverts this to a start value of 0 */
}

uint32_t crc_add(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    size_t whole = bytes / STRIDE * STRIDE;
    if (whole && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
        crc = fold(crc, p, whole);
        p += whole, bytes -= whole;
    }
    /* An empty tensor may have a NULL pointer, which zlib takes for a request to start anew. */
    return bytes ? (uint32_t)crc32_z(crc, p, bytes) : crc;
}
#else
uint32_t crc_add(uint32_t crc, const void *data, size_t bytes)
{
    return bytes ? (uint32_t)crc32_z(crc, data, bytes) : crc;
}
#endif
