/*
 * crc.h - the CRC-32 of zlib, at the speed of memory.
 */
#ifndef HEED_STORE_CRC_H
#define HEED_STORE_CRC_H
#include <stddef.h>
#include <stdint.h>

/* The CRC of what came before, 0 at first, and of these bytes. */
uint32_t crc_add(uint32_t crc, const void *data, size_t bytes);

#endif
