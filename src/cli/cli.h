/*
 * cli.h - what the commands share: exit codes, error sentences, output that is checked, numbers
 * for people. The program sees the library through heed.h alone.
 */
#ifndef HEED_CLI_H
#define HEED_CLI_H
#include <stdbool.h>
#include <stdint.h>

enum { CLI_DONE = 0, CLI_FAILURE = 1, CLI_MISUSE = 2 };

/* Both print "heed: sentence" on stderr and return their exit code, so that a command can return
 * the call. */
int cli_failure(const char *format, ...) __attribute__((format(printf, 1, 2)));
int cli_misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Whether a person sees what is written to a descriptor, or types what is read. */
bool cli_terminal(int fd);
/* The time that has passed, in seconds, from a clock that is never set */
double cli_now(void);

struct heed_engine;
/* Called once, first: HEED_ISA=avx2 in the environment becomes HEED_DEVICE=cpu:avx2, where that is
 * not set. */
void cli_read_isa(void);
/* The default of --device: what HEED_DEVICE says, else "cpu". */
const char *cli_device(void);
/* The engine of a device; NULL after a sentence, which names the variable that chose it. */
struct heed_engine *cli_engine_open(const char *device, int threads);

/* Flushes stdout; CLI_FAILURE with a sentence when anything written since the start was lost. */
int cli_flush(void);

/* "1,234,567" in a buffer the caller lends; returns it. */
enum { CLI_NUMBER_MAX = 32 };
const char *cli_count(char out[CLI_NUMBER_MAX], int64_t n);
/* Size of the weights in a model directory, in bytes; 0 where there are none. */
int64_t cli_weights_bytes(const char *dir);
/* "42s", "3m 20s", "5h 07m" or "2d 04h" */
const char *cli_duration(char out[CLI_NUMBER_MAX], double seconds);

/* The commands: each has its own file, takes the arguments of main (argv[1] is its name) and
 * returns the program's exit code. */
int cmd_vocab(int argc, char **argv);
int cmd_train(int argc, char **argv);
int cmd_translate(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_score(int argc, char **argv);
int cmd_tree(int argc, char **argv);
int cmd_evaluate(int argc, char **argv);
int cmd_reproduce(int argc, char **argv);
int cmd_average(int argc, char **argv);
int cmd_quantize(int argc, char **argv);
int cmd_attention(int argc, char **argv);
int cmd_positions(int argc, char **argv);
int cmd_neighbours(int argc, char **argv);
int cmd_heads(int argc, char **argv);

#endif
