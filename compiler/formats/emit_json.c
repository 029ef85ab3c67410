/* The report for programs: report.json, one object, keys in a fixed order. */
#include "base/put_json.h"
#include "formats.h"

static void put_figure(struct text *t, const char *indent, const char *key, double x) {
    char buf[32];
    put(t, "%s\"%s\": %s,\n", indent, key, number_or_null(x, buf));
}

static void put_rank(struct text *t, int r, const struct rank_report *k) {
    const char *in = "      ";
    put(t, "    {\n%s\"rank\": %d,\n", in, r);
    put_figure(t, in, "busy", k->busy);
    put_figure(t, in, "idle", k->idle);
    put_figure(t, in, "span", k->span);
    put(t, "%s\"peak_activations\": %d,\n", in, k->peak_activations);
    put(t, "%s\"peak_bytes\": %lld,\n", in, (long long)k->peak_bytes);
    put(t, "%s\"at_peak\": {", in);
    for (int h = 0; h < NHELD; h++)
        put(t, "%s\"%s\": %lld", h ? ", " : " ", held_name[h], (long long)k->held[h]);
    put(t, " },\n");
    put(t, "%s\"activations_received\": %d,\n", in, k->activations_received);
    put(t, "%s\"gradients_received\": %d,\n", in, k->gradients_received);
    put(t, "%s\"weights_received\": %d,\n", in, k->weights_received);
    put(t, "%s\"reductions_received\": %d,\n", in, k->reductions_received);
    put(t, "%s\"bytes_received\": %lld,\n", in, (long long)k->bytes_received);
    put(t, "%s\"stages_stored\": %d\n    }", in, k->stages_stored);
}

void emit_json(struct text *out, const struct report *r) {
    put(out, "{\n  \"schema\": 1,\n  \"schedule\": ");
    put_string(out, r->schedule);
    put(out, ",\n  \"workers\": %d,\n  \"stages\": %d,\n  \"batches\": %d,\n", r->workers, r->stages, r->batches);
    put(out, "  \"unit\": ");
    put_string(out, r->unit);
    put(out, ",\n");
    if (r->measured)
        put(out, "  \"measured_steps\": %d,\n", r->measured);
    put_figure(out, "  ", "makespan", r->makespan);
    put_figure(out, "  ", "lower_bound", r->lower_bound);
    put_figure(out, "  ", "bound_work", r->bound_work);
    put_figure(out, "  ", "bound_path", r->bound_path);
    put_figure(out, "  ", "bound_memory", r->bound_memory);
    put_figure(out, "  ", "gap", r->gap);
    put_figure(out, "  ", "bubble", r->bubble);
    put_figure(out, "  ", "throughput", r->throughput);
    put(out, "  \"ranks\": [\n");
    for (int i = 0; i < r->workers; i++) {
        put_rank(out, i, &r->rank[i]);
        put(out, i + 1 < r->workers ? ",\n" : "\n");
    }
    put(out, "  ]\n}\n");
}
