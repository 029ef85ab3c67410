/* `show --watch`: a frame in the terminal, and another when what it was made of changes. */
#ifndef PIANOLA_REDRAW_H
#define PIANOLA_REDRAW_H
#include "base/text.h"
#include "command.h"

/* What a frame says, in short, for the line under the next one. */
struct gist {
    double makespan, peak; /* peak: bytes of the rank with most */
    char unit[8];          /* of the makespan, as report.unit */
};
/* Until a signal ends the program. frame makes what is to be seen, in a process of its own, where it may die. */
int watch(const struct settings *settings, struct gist (*frame)(const struct settings *settings, struct text *out));
#endif
