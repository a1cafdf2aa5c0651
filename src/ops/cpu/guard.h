/*
 * guard.h - calls C functions that may end in a C++ exception, which must not pass through C.
 */
#ifndef HEED_OPS_CPU_GUARD_H
#define HEED_OPS_CPU_GUARD_H
#ifdef __cplusplus
extern "C" {
#endif

/* Returns f(arg), or `thrown` where f ends in an exception, as a C++ library does when memory is
 * lacking. An exception leaves C functions like longjmp, so f must not hold memory or locks across
 * a call that may throw. */
int guard_call(int (*f)(void *arg), void *arg, int thrown);

#ifdef __cplusplus
}
#endif
#endif
