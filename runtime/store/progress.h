/* The progress line of a training run. */
#ifndef PIANOLA_PROGRESS_H
#define PIANOLA_PROGRESS_H
#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what;
    int64_t from, steps, tokens; /* steps done before this run; to be done; rows per step */
    bool tty;                    /* rewrite one line; otherwise a line every five seconds, and a last one */
    double told;
};
/* step: how many are done. rate: the last one's, of learning. seconds: since this run began. Writes to stderr; call it
 * ten times a second at most. */
void progress_tell(struct progress *progress, int64_t step, float loss, double rate, double seconds);
#endif
