#include "losses.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char head[] = "update\tmicrobatches\tloss\tpredicted\tmeasured\n";

static bool trouble(const struct losses *losses, char *why, size_t nwhy) {
    snprintf(why, nwhy, "%s: %s", losses->path, strerror(errno));
    return false;
}

/* Bytes of f up to the first line of an update behind `kept`, or that a crash cut short. -1: it does not begin as ours
 * do; an empty file is ours. */
static long bytes_to_keep(FILE *f, int64_t kept) {
    char line[sizeof head + 256];
    rewind(f);
    if (!fgets(line, sizeof line, f))
        return 0;
    if (strcmp(line, head) != 0)
        return -1;
    long at = ftell(f);
    while (fgets(line, sizeof line, f) && strchr(line, '\n') && strtoll(line, NULL, 10) <= kept)
        at = ftell(f);
    return kept > 0 ? at : 0;
}

static bool settle(struct losses *losses, char *why, size_t nwhy) {
    return (fflush(losses->f) == 0 && fdatasync(fileno(losses->f)) == 0) || trouble(losses, why, nwhy);
}

bool losses_open(struct losses *losses, const char *path, int64_t kept, char *why, size_t nwhy) {
    losses->path = path;
    losses->f = fopen(path, "a+e"); /* what is written goes to the end, wherever it is read */
    if (!losses->f)
        return trouble(losses, why, nwhy);
    long at = bytes_to_keep(losses->f, kept);
    if (at < 0) {
        snprintf(why, nwhy, "%s: this file holds something else than losses; name another to write to", path);
        return false;
    }
    if (ftruncate(fileno(losses->f), at) != 0)
        return trouble(losses, why, nwhy);
    fseek(losses->f, 0, SEEK_END); /* from reading to writing */
    if (at == 0)
        fputs(head, losses->f);
    return settle(losses, why, nwhy);
}

bool losses_step(struct losses *losses, int64_t step, int32_t batches, int32_t slices, const struct rt_stage *last,
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
    return settle(losses, why, nwhy);
}

void losses_close(struct losses *losses) { fclose(losses->f); }
