/* Writes timelines as Chrome trace events, for Perfetto: JSON, one event per line.
 *
 * Importers' rules dictate the form. They identify a thread by its tid alone, and a process's main thread has the pid
 * as its tid. So tids are unique over all ranks and differ from all pids. They sort names as text, so ranks are
 * zero-padded, and lane names begin with the lane's number. They pick colours by the name without its digits. */
#include "base/put_json.h"
#include "emit_trace.h"
#include <math.h>

static void put_time(struct text *t, const char *key, int64_t ns) { /* microseconds */
    put(t, "\"%s\":%lld.%03d", key, (long long)(ns / 1000), (int)(ns % 1000));
}

static void put_track_names(struct text *t, const struct program *p, const int32_t *first_tid) {
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &p->rank[r];
        put(t, ",\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"rank %0*d\"}}", r + 1,
            decimal_digits(p->workers - 1), r);
        for (int l = 0; l < k->nlanes; l++) {
            put(t, ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%0*d ", r + 1,
                first_tid[r] + l, decimal_digits(k->nlanes - 1), l);
            put_lane(t, p, &k->lane[l]);
            put(t, "\"}}");
        }
    }
}

static void put_slice(struct text *t, const struct trace *trace, const struct program *p, const struct steps *steps,
                      const struct mark *mark, int tid) {
    const struct rank *k = &p->rank[mark->rank];
    const struct instr *in = &k->ins[mark->ins];
    const struct buf *b = payload(k, in);
    put(t, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,", mark->rank + 1, tid);
    put_time(t, "ts", mark->t);
    put(t, ",");
    put_time(t, "dur", trace->end[mark->step][mark->rank][mark->ins] - mark->t);
    put(t, ",\"name\":\"");
    put_slice_name(t, &p->names, in);
    put(t, "\",\"cat\":\"%s\",\"args\":{\"stage\":%d", slice_category(in), in->stage);
    if (steps->number)
        put(t, ",\"step\":%d", steps->number[mark->step]);
    put_slice_args(t, &p->names, k, in);
    if (!sends_message(in) && !receives_message(in))
        return;
    put(t, ",\n{\"ph\":\"%s,\"pid\":%d,\"tid\":%d,", sends_message(in) ? "s\"" : "f\",\"bp\":\"e\"", mark->rank + 1,
        tid);
    put_time(t, "ts", mark->t);
    put(t, ",\"id\":%d,\"name\":\"%s\",\"cat\":\"message\"}", in->msg + 1 + mark->step * p->nmsgs,
        b ? kind_name[b->kind] : "message");
}

static void put_memory_counter(struct text *t, const struct trace *trace, int r) {
    for (int i = 0; i < trace->nlevels[r]; i++) {
        put(t, ",\n{\"ph\":\"C\",\"pid\":%d,", r + 1);
        put_time(t, "ts", trace->memory[r][i].t);
        put(t, ",\"name\":\"memory\",\"args\":{\"bytes\":%lld}}", (long long)trace->memory[r][i].bytes);
    }
}

/* Writes marks on the rank's whole process. */
static void put_join_marks(struct text *t, const struct trace *trace, const struct program *p,
                           const struct steps *steps, int r, int tid) {
    for (int k = 0; k < steps->n; k++) {
        const double *join = join_times(p, &steps->of[k], r);
        for (int i = 0; i < joins_of(p); i++) {
            put(t, ",\n{\"ph\":\"i\",\"s\":\"p\",\"pid\":%d,\"tid\":%d,", r + 1, tid);
            put_time(t, "ts", llround(join[i] * trace->unit_ns));
            put(t, ",\"name\":\"%s\",\"cat\":\"period\"}", join_name(p, i));
        }
    }
}

void emit_chrome(struct text *out, const struct program *p, const struct steps *steps, const char *unit) {
    const struct trace *trace = trace_make(p, steps, unit);
    int32_t *first_tid = NEW(int32_t, p->workers);
    for (int r = 0, next = p->workers + 1; r < p->workers; next += p->rank[r++].nlanes)
        first_tid[r] = next;
    char ns[32];
    put(out, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"schedule\":");
    put_string(out, p->name);
    put(out, ",\"unit\":\"%s\",\"ns_per_unit\":%s},\n\"traceEvents\":[\n", unit, number(trace->unit_ns, ns));
    put(out, "{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":1,\"args\":{\"labels\":");
    put_string(out, p->name);
    put(out, "}}");
    put_track_names(out, p, first_tid);
    for (const struct mark *mark = trace->mark; mark < trace->mark + trace->nmarks; mark++)
        if (mark->what != ENDS)
            put_slice(out, trace, p, steps, mark, first_tid[mark->rank] + p->rank[mark->rank].ins[mark->ins].lane);
    for (int r = 0; r < p->workers; r++) {
        put_memory_counter(out, trace, r);
        put_join_marks(out, trace, p, steps, r, first_tid[r]);
    }
    put(out, "\n]}\n");
}
