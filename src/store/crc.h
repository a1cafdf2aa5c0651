/*
 * crc.h - the CRC-32 of zlib, about as fast as memory can be read.
 */
#ifndef HEED_STORE_CRC_H
#define HEED_STORE_CRC_H
#include <stddef.h>
#include <stdint.h>

/* The CRC of some bytes followed by these; crc is that of the bytes before, 0 where there are none.
 */
uint32_t crc_add(uint32_t crc, const void *data, size_t bytes);

#endif
