# assets.cmake - writes a C file with the table of files that src/serve/assets.h describes, without
# indentation and without lines that are comments.
#
# usage: cmake -D "FROM=index.html;style.css" -D TO=assets.c -P assets.cmake

set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_svg "image/svg+xml")

foreach(path ${FROM})
  cmake_path(GET path FILENAME name)
  cmake_path(GET path EXTENSION LAST_ONLY extension)
  string(SUBSTRING ${extension} 1 -1 extension)
  if(NOT DEFINED type_${extension})
    message(FATAL_ERROR "${path} ends with .${extension}, for which no Content-Type is known.")
  endif()
  file(READ ${path} text)
  string(REGEX REPLACE "(^|\n)[ \n]+" "\\1" text "${text}")
  if(extension STREQUAL "js")
    string(REGEX REPLACE "(^|\n)(//[^\n]*\n)+" "\\1" text "${text}")
  endif()
  string(HEX "${text}" bytes)
  string(SHA256 hash "${text}")
  string(SUBSTRING ${hash} 0 32 hash)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(MAKE_C_IDENTIFIER ${name} symbol)
  string(APPEND data "static const unsigned char ${symbol}[] = {${bytes}};\n")
  string(APPEND rows "    {\"${name}\", \"${type_${extension}}\", ${symbol}, sizeof ${symbol}, "
                     "\"\\\"${hash}\\\"\"},\n")
endforeach()

file(WRITE ${TO} "/* Written by cmake/assets.cmake. */
#include \"serve/assets.h\"
#include <string.h>

${data}
static const struct asset table[] = {
${rows}};

const struct asset *asset_find(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].name, name) == 0) return &table[i];
    }
    return NULL;
}
")
