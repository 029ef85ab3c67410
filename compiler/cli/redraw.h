/* `show --watch`: draws a frame in the terminal, and another whenever a file that it depends on changes. */
#ifndef PIANOLA_REDRAW_H
#define PIANOLA_REDRAW_H
#include "base/text.h"
#include "command.h"

/* A frame's key figures, for the line under the next frame. */
struct gist {
    double makespan, peak; /* peak: bytes of the rank that needs most */
    char unit[8];          /* the makespan's, from report.unit */
};
/* Runs until a signal ends the program. frame makes the text in a child process, where it may die. */
int watch(const struct settings *settings, struct gist (*frame)(const struct settings *settings, struct text *out));
#endif
