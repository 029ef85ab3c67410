/* Terminal properties: width, colours and encoding, unless options override them. */
#ifndef PIANOLA_TERMINAL_H
#define PIANOLA_TERMINAL_H
#include "command.h"

struct style
terminal_style(const struct settings *settings); /* the requested style, with the terminal's width and colours */
bool is_utf8(void);
#endif
