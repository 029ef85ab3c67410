#include "losses.h"

static const struct journal_kind kind = {"update\tmicrobatches\tloss\tpredicted\tmeasured\n", "", "losses"};

bool losses_open(struct journal *losses, const char *path, int64_t kept, char *why, size_t nwhy) {
    return journal_open(losses, path, &kind, kept, why, nwhy);
}

bool losses_step(struct journal *losses, const struct rt_program *p, const struct losses_step *of, char *why,
                 size_t nwhy) {
    int32_t updates = updates_per_step(p->batches, &p->stage[p->updated]), each = p->batches / updates;
    for (int32_t k = 0; k < updates; k++) {
        float sum = 0;
        for (int32_t b = k * each; b < (k + 1) * each; b++)
            sum += of->loss[b];
        fprintf(losses->f, "%lld\t%d\t%.9g\t", (long long)(of->step * updates + k + 1),
                each / pieces_of_batch(p->model), (double)(sum / (float)each));
        if (of->predicted)
            fprintf(losses->f, "%.9g", of->predicted[k]);
        fputc('\t', losses->f);
        if (of->when[k] > 0)
            fprintf(losses->f, "%.6f", of->when[k]);
        fputc('\n', losses->f);
    }
    return journal_settle(losses, why, nwhy);
}
