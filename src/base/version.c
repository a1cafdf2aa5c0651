/*
 * version.c - the version of the library; the number itself lives in CMakeLists.txt.
 */
#include "heed.h"

const char *heed_version(void)
{
    return HEED_VERSION;
}
