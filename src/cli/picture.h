/*
 * picture.h - a picture or report that a command writes to --out FILE: the ending of the name says
 * the format.
 *
 * Call order: picture_file_init before any work, so that a wrong name is said at once; make the
 * text that `kind` asks for; picture_file_write.
 */
#ifndef HEED_CLI_PICTURE_H
#define HEED_CLI_PICTURE_H
#include <stdbool.h>

#include "cli/options.h"
#include "heed.h"

/* Endings that a command knows, as a sum. */
enum picture_ending {
    PICTURE_SVG = 1,
    PICTURE_PNG = 2,
    PICTURE_HTML = 4,
    PICTURE_JSON = 8,
    PICTURE_MARKDOWN = 16
};

struct picture_file {
    const char *path;
    enum heed_picture kind; /* what the library is to draw: a PNG is made of an SVG */
    bool png;
};

/* The entry of an option table for the theme of a .png, and the theme that it names. */
struct option picture_theme_option(const char **theme);
enum heed_theme picture_theme(const char *name);

/* CLI_DONE, or CLI_MISUSE after a sentence that names the endings that are known. */
int picture_file_init(struct picture_file *f, const char *path, unsigned endings);
/* Writes the file; text is of `kind`. theme: of a PNG. Returns an exit code. */
int picture_file_write(const struct picture_file *f, const char *text, enum heed_theme theme);

/* For a command that prints its picture where --out names no file, that is where f is {0}: what the
 * library is to draw, and where the text goes. */
enum heed_picture picture_kind(const struct picture_file *f, bool json);
int picture_show(const struct picture_file *f, const char *text, enum heed_theme theme);

#endif
