# embed.cmake - writes a C file with the text of another file, which is ASCII, as a string.
#
# usage: cmake -D FROM=page.css -D TO=page_css.c -D NAME=page_css -P embed.cmake

file(READ ${FROM} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(WRITE ${TO} "extern const char ${NAME}[];\nconst char ${NAME}[] = {${bytes}0};\n")
