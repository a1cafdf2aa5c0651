/*
 * interrupt.h - long work that Ctrl-C, SIGTERM or SIGHUP asks to save and end.
 *
 * Call order: interrupt_catch; interrupt_number now and then, and what it asks for; interrupt_end
 * once everything is saved.
 */
#ifndef HEED_CLI_INTERRUPT_H
#define HEED_CLI_INTERRUPT_H

/* From now on a signal is remembered; one more, a second later or after, ends the program at once.
 */
void interrupt_catch(void);
/* The signal that came; 0: none. */
int interrupt_number(void);
/* Ends the program as the signal would have, so that a script that runs it stops as well. */
int interrupt_end(void);

/* Prints the command line on stderr for a shell to read back; `extra`, where it is not NULL, goes
 * behind the name of the command. */
void interrupt_say_how_to_go_on(int argc, char **argv, const char *extra);

#endif
