#include "progress.h"
#include <stdio.h>

void progress_tell(struct progress *progress, int64_t step, float loss, double rate, double seconds) {
    bool last = step == progress->steps;
    if (!last && seconds < progress->told + (progress->tty ? 0.1 : 5))
        return;
    progress->told = seconds;
    double each = seconds / (double)(step - progress->from);
    fprintf(stderr, "%s%s: step %lld/%lld  loss %.4f  rate %.3g  %.0f tokens/s  %.0f s left%s",
            progress->tty ? "\r\033[K" : "", progress->what, (long long)step, (long long)progress->steps, loss, rate,
            (double)progress->tokens / each, each * (double)(progress->steps - step),
            progress->tty && !last ? "" : "\n");
}
