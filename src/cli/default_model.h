/*
 * default_model.h - the model that comes with the program.
 */
#ifndef HEED_CLI_DEFAULT_MODEL_H
#define HEED_CLI_DEFAULT_MODEL_H

enum { CLI_PATH_MAX = 4096 };

/* Its directory, in path: share/heed/default beside the bin/ the program is installed in, or
 * models/default of the source tree it was built in. NULL where there is none; path then has the
 * former. */
const char *default_model(char path[CLI_PATH_MAX]);

#endif
