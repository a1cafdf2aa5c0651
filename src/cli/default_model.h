/*
 * default_model.h - the model that comes with the program.
 */
#ifndef HEED_CLI_DEFAULT_MODEL_H
#define HEED_CLI_DEFAULT_MODEL_H

enum { CLI_PATH_MAX = 4096 };

/* Its directory, in path: models/default beside the program where it was built, or
 * share/heed/default beside the bin/ it is installed in. NULL where there is none; path then holds
 * the second place, for an error message. */
const char *default_model(char path[CLI_PATH_MAX]);

#endif
