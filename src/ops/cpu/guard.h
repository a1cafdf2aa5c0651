/*
 * guard.h - calls into C++ from C, where an exception must not pass.
 */
#ifndef HEED_OPS_CPU_GUARD_H
#define HEED_OPS_CPU_GUARD_H
#ifdef __cplusplus
extern "C" {
#endif

/* What f(arg) returns; `thrown` where it ends in an exception, as a library in C++ does without
 * memory. C functions on the way are left as by longjmp, so f must not hold anything there. */
int guard_call(int (*f)(void *arg), void *arg, int thrown);

#ifdef __cplusplus
}
#endif
#endif
