/*
 * guard.cc - see guard.h.
 */
#include "ops/cpu/guard.h"

int guard_call(int (*f)(void *arg), void *arg, int thrown)
{
    try {
        return f(arg);
    } catch (...) {
        return thrown;
    }
}
