#include "losses.h"

static const struct journal_kind kind = {"update\tmicrobatches\tloss\tpredicted\tmeasured\n", "", "losses"};

bool losses_open(struct journal *losses, const char *path, int64_t kept, char *why, size_t nwhy) {
    return journal_open(losses, path, &kind, kept, why, nwhy);
}

bool losses_step(struct journal *losses, int64_t step, int32_t batches, int32_t slices, const struct rt_stage *last,
                 const float *loss, const double *predicted, const double *when, char *why, size_t nwhy) {
    int32_t updates = updates_per_step(batches, last), each = batches / updates;
    for (int32_t k = 0; k < updates; k++) {
        float sum = 0;
        for (int32_t b = k * each; b < (k + 1) * each; b++)
            sum += loss[b];
        fprintf(losses->f, "%lld\t%d\t%.9g\t", (long long)(step * updates + k + 1), slices > 0 ? each / slices : each,
                (double)(sum / (float)each));
        if (predicted)
            fprintf(losses->f, "%.9g", predicted[k]);
        fputc('\t', losses->f);
        if (when[k] > 0)
            fprintf(losses->f, "%.6f", when[k]);
        fputc('\n', losses->f);
    }
    return journal_settle(losses, why, nwhy);
}
