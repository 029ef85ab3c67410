/* Writes the report in machine-readable form: report.json, one object, keys in a fixed order. */
#include "base/put_json.h"
#include "formats.h"
#include <math.h>

static void put_figure(struct text *t, const char *indent, const char *key, double x) {
    char buf[32];
    put(t, "%s\"%s\": %s,\n", indent, key, number_or_null(x, buf));
}

static void put_ahead_json(struct text *t, const char *key, const struct ahead *ahead) {
    char buf[32];
    put(t, "      \"%s\": { \"exposed_weights\": %s, \"peak_bytes\": %lld, \"bytes_beyond_memory\": %lld },\n", key,
        number_or_null(ahead->exposed, buf), (long long)ahead->peak, (long long)ahead->beyond);
}

/* Writes the weights received, and the cost of a fixed prefetch. */
static void put_weights_json(struct text *t, const char *in, const struct weights_use *weights) {
    put(t, "%s\"weights_bytes\": %lld,\n", in, (long long)weights->received);
    put(t, "%s\"weights_bound\": %lld,\n", in, (long long)weights->bound);
    put_figure(t, in, "weights_gap", weights->bound > 0 ? (double)weights->received / (double)weights->bound - 1 : 0);
    if (!weights->tried)
        return;
    put_ahead_json(t, "one_ahead", &weights->ahead[0]);
    put_ahead_json(t, "two_ahead", &weights->ahead[1]);
}

static void put_by_tensor(struct text *t, const char *key, const double time[NEXPOSED]) {
    put(t, "      \"%s\": {", key);
    for (int i = 0; i < NEXPOSED; i++) {
        char buf[32];
        put(t, "%s\"%s\": %s", i ? ", " : " ", exposed_name[i], number_or_null(time[i], buf));
    }
    put(t, " },\n");
}

void put_jitter_json(struct text *t, const struct jitter *jitter) {
    char level[32], mean[32], p95[32], worst[32];
    put(t, "\"jitter\": { \"level\": %s, \"runs\": %lld, \"mean\": %s, \"p95\": %s, \"worst\": %s }",
        number_or_null(jitter->level, level), (long long)jitter->runs, number_or_null(jitter->mean, mean),
        number_or_null(jitter->p95, p95), number_or_null(jitter->worst, worst));
}

static void put_rank(struct text *t, int r, const struct rank_report *report) {
    const char *in = "      ";
    put(t, "    {\n%s\"rank\": %d,\n", in, r);
    put_figure(t, in, "busy", report->busy);
    put_figure(t, in, "idle", report->idle);
    put_figure(t, in, "span", report->span);
    put(t, "%s\"peak_activations\": %d,\n", in, report->peak_activations);
    put(t, "%s\"peak_bytes\": %lld,\n", in, (long long)report->peak_bytes);
    put(t, "%s\"least_bytes\": %lld,\n", in, (long long)report->least_bytes);
    put(t, "%s\"host_bytes\": %lld,\n", in, (long long)report->host_bytes);
    put(t, "%s\"at_peak\": {", in);
    for (int h = 0; h < NHELD; h++)
        put(t, "%s\"%s\": %lld", h ? ", " : " ", held_name[h], (long long)report->held[h]);
    put(t, " },\n");
    put(t, "%s\"activations_received\": %d,\n", in, report->activations_received);
    put(t, "%s\"gradients_received\": %d,\n", in, report->gradients_received);
    put(t, "%s\"weights_received\": %d,\n", in, report->weights_received);
    put(t, "%s\"reductions_received\": %d,\n", in, report->reductions_received);
    put(t, "%s\"gathers\": %d,\n", in, report->gathers);
    put(t, "%s\"gathers_apart\": %d,\n", in, report->gathers_apart);
    put(t, "%s\"reductions\": %d,\n", in, report->reductions);
    put(t, "%s\"bytes_received\": %lld,\n", in, (long long)report->bytes_received);
    put(t, "%s\"bytes_sent\": %lld,\n", in, (long long)report->bytes_sent);
    put(t, "%s\"bytes_offloaded\": %lld,\n", in, (long long)report->offloaded);
    put(t, "%s\"bytes_reloaded\": %lld,\n", in, (long long)report->reloaded);
    put_by_tensor(t, "exposed", report->exposed);
    put_by_tensor(t, "hidden", report->hidden);
    if (report->weights)
        put_weights_json(t, in, report->weights);
    put(t, "%s\"stages_stored\": %d\n    }", in, report->stages_stored);
}

static void put_per_stage(struct text *t, const char *key, const int *value, int stages) {
    put(t, "  \"%s\": [", key);
    for (int s = 0; s < stages; s++)
        put(t, "%s%d", s ? ", " : "", value[s]);
    put(t, "],\n");
}

void emit_json(struct text *out, const struct report *report) {
    bool unknown = report->measured > 0; /* how a measured step overlaps the next */
    put(out, "{\n  \"schema\": 1,\n  \"schedule\": ");
    put_string(out, report->schedule);
    put(out, ",\n  \"workers\": %d,\n  \"stages\": %d,\n  \"batches\": %lld,\n", report->workers, report->stages,
        (long long)report->step_batches);
    if (report->slices)
        put(out, "  \"slices\": %d,\n", report->slices);
    put(out, "  \"unit\": ");
    put_string(out, report->unit);
    put(out, ",\n");
    if (report->measured)
        put(out, "  \"measured_steps\": %d,\n", report->measured);
    put_figure(out, "  ", "makespan", report->makespan);
    put_figure(out, "  ", "period", unknown ? NAN : report->period);
    put(out, "  \"period_batches\": %d,\n", report->period_batches);
    put_figure(out, "  ", "steady_bubble", unknown ? NAN : report->steady_bubble);
    put_per_stage(out, "staleness", report->staleness, report->stages);
    put_per_stage(out, "versions", report->versions, report->stages);
    put(out, "  \"mixed_versions\": %lld,\n", (long long)report->mixed);
    put_figure(out, "  ", "lower_bound", report->bound.lower);
    put_figure(out, "  ", "bound_work", report->bound.work);
    put_figure(out, "  ", "bound_path", report->bound.path);
    put_figure(out, "  ", "bound_memory", report->bound.memory);
    put_figure(out, "  ", "gap", report->gap);
    put_figure(out, "  ", "memory_room", report->memory_time.room);
    put_figure(out, "  ", "memory_held", report->memory_time.held);
    put_figure(out, "  ", "memory_needed", report->memory_time.needed);
    if (report->jitter) {
        put(out, "  ");
        put_jitter_json(out, report->jitter);
        put(out, ",\n");
    }
    put_figure(out, "  ", "bubble", report->bubble);
    if (!isnan(report->closed_bubble))
        put_figure(out, "  ", "closed_bubble", report->closed_bubble);
    put_figure(out, "  ", "throughput", report->throughput);
    put(out, "  \"ranks\": [\n");
    for (int i = 0; i < report->workers; i++) {
        put_rank(out, i, &report->rank[i]);
        put(out, i + 1 < report->workers ? ",\n" : "\n");
    }
    put(out, "  ]\n}\n");
}
