#include "progress.h"
#include <stdio.h>

void progress_tell(struct progress *t, int64_t step, float loss, double seconds) {
    bool last = step == t->steps;
    if (!last && seconds < t->told + (t->tty ? 0.1 : 5))
        return;
    t->told = seconds;
    double each = seconds / (double)(step - t->from);
    fprintf(stderr, "%s%s: step %lld/%lld  loss %.4f  %.0f tokens/s  %.0f s left%s", t->tty ? "\r\033[K" : "", t->what,
            (long long)step, (long long)t->steps, loss, (double)t->tokens / each, each * (double)(t->steps - step),
            t->tty && !last ? "" : "\n");
}
