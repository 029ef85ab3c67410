#include "metrics.h"
#include <math.h>

static const struct journal_kind kind = {"", "{\"step\": ", "metrics"};

bool metrics_open(struct journal *metrics, const char *path, int64_t kept, char *why, size_t nwhy) {
    return journal_open(metrics, path, &kind, kept, why, nwhy);
}

/* digits: of which the number is known. */
static void write_metric(FILE *f, const char *name, double x, int digits) {
    if (isfinite(x))
        fprintf(f, ", \"%s\": %.*g", name, digits, x);
    else
        fprintf(f, ", \"%s\": null", name);
}

bool metrics_step(struct journal *metrics, const struct metrics_step *step, char *why, size_t nwhy) {
    FILE *f = metrics->f;
    fprintf(f, "%s%lld", kind.before, (long long)step->step);
    write_metric(f, "loss", step->loss, 9);
    write_metric(f, "rate", step->rate, 9);
    write_metric(f, "gradient_norm", step->norm, 17);
    write_metric(f, "seconds", step->seconds, 6);
    write_metric(f, "tokens_per_second", step->tokens / step->seconds, 6);
    write_metric(f, "memory_bytes", (double)step->memory, 17);
    write_metric(f, "waited_seconds", step->waited, 6);
    fputs("}\n", f);
    return journal_settle(metrics, why, nwhy);
}

bool metrics_validation(struct journal *metrics, int64_t step, double loss, char *why, size_t nwhy) {
    fprintf(metrics->f, "%s%lld", kind.before, (long long)step);
    write_metric(metrics->f, "validation_loss", loss, 9);
    fputs("}\n", metrics->f);
    return journal_settle(metrics, why, nwhy);
}
