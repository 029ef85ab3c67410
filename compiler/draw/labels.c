/* Text in and next to pictures: times, bytes, lanes. */
#include "draw.h"
#include <math.h>
#include <string.h>

struct measure measure_of(double largest, const char *unit, bool ascii) {
    static const struct measure flops[] = {{1e15, "PFLOP"}, {1e12, "TFLOP"}, {1e9, "GFLOP"}, {1e6, "MFLOP"}};
    if (!strcmp(unit, "s"))
        return largest >= 1      ? (struct measure){1, "s"}
               : largest >= 1e-3 ? (struct measure){1e-3, "ms"}
                                 : (struct measure){1e-6, ascii ? "us" : "µs"};
    if (!strcmp(unit, "FLOP"))
        for (int i = 0; i < 4; i++)
            if (largest >= flops[i].one)
                return flops[i];
    return (struct measure){1, !strcmp(unit, "F") ? "units" : unit};
}

struct measure measure_of_bytes(double largest) {
    static const char *const name[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (largest < 10 << 10)
        return (struct measure){1, "B"};
    double one = 1024;
    int i = 0;
    for (; largest / one >= 1023.95 && i < 5; i++)
        one *= 1024;
    return (struct measure){one, name[i]};
}

const char *bytes_text(double n, char buf[32]) {
    struct measure measure = measure_of_bytes(n);
    double x = n / measure.one;
    snprintf(buf, 32, measure.one == 1 ? "%.0f %s" : x < 1e6 ? "%.1f %s" : "%.4g %s", x, measure.name);
    return buf;
}

const char *time_text(double t, const struct measure *measure, char buf[32]) {
    double x = t / measure->one;
    bool whole = fabs(x) >= 1000 || x == floor(x);
    snprintf(buf, 32, whole && fabs(x) < 1e15 ? "%.0f" : "%.4g", x);
    return buf;
}

const char *lane_label(const struct program *p, const struct lane *lane) {
    struct text t = {0};
    put_lane(&t, p, lane);
    const struct lanekind_row *row = lanekind_row(lane->kind);
    return t.n > 10 && row->of == OF_GROUP ? format("%s of %d", row->word, p->group[lane->group].n) : t.s;
}

bool several_stages(const struct program *p) {
    for (int r = 0; r < p->workers; r++)
        for (int i = 0, first = -1; i < p->rank[r].nins; i++) {
            const struct instr *in = &p->rank[r].ins[i];
            if (!is_job(in->op))
                continue;
            if (first >= 0 && in->stage != first)
                return true;
            first = in->stage;
        }
    return false;
}

const char *repeated_text(const struct program *p, const struct timeline *tl, const struct measure *measure) {
    char a[32];
    if (p->period == 0)
        return "a step begins";
    const char *time =
        tl->period > 0 ? format("%s %s, ", time_text(tl->period, measure, a), measure->name) : ""; /* measured */
    return format("period: %d microbatch%s, %sruns %lld time%s", p->period, p->period > 1 ? "es" : "", time,
                  (long long)p->repeats, p->repeats > 1 ? "s" : "");
}
