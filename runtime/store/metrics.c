#include "metrics.h"
#include <math.h>

static const struct journal_kind kind = {"", "{\"step\": ", "metrics"};

bool metrics_open(struct journal *metrics, const char *path, int64_t kept, char *why, size_t nwhy) {
    return journal_open(metrics, path, &kind, kept, why, nwhy);
}

bool metrics_line(struct journal *metrics, int64_t step, const struct metric *metric, int n, char *why, size_t nwhy) {
    FILE *f = metrics->f;
    fprintf(f, "%s%lld", kind.before, (long long)step);
    for (const struct metric *m = metric; m < metric + n; m++)
        if (isfinite(m->value))
            fprintf(f, ", \"%s\": %.*g", m->name, m->digits, m->value);
        else
            fprintf(f, ", \"%s\": null", m->name);
    fputs("}\n", f);
    return journal_settle(metrics, why, nwhy);
}
