/* Writes timelines of one rank for Holistic Trace Analysis (HTA, Meta), as Kineto, PyTorch's profiler, would record
 * them on a GPU.
 *
 * HTA 0.5's rules dictate the form. It takes the rank from the first line with "rank", a colon, a space and a number. A
 * kernel is an event with a stream and a correlation; it is communication if its name begins with nccl and contains
 * Kernel, else computation. A kernel belongs to the step in which the CPU event with the same correlation was launched,
 * and is dropped if there is none. So each step has one launch, like a CUDA graph's. Times are whole microseconds: HTA
 * rounds begins up and ends down, which makes short durations negative. Stream 0 has no steps. Kernels are grouped by
 * name, so names contain no numbers. Correlations are large because HTA stores event indices in a column only as wide
 * as the correlations need. */
#include "emit_trace.h"
#include <math.h>

enum { FIRST_CORRELATION = 1 << 20 };

struct span {
    int64_t begin, end; /* microseconds */
};

static int64_t microseconds(double t, double unit_ns) { return llround(t * unit_ns / 1000); }

static struct span extent(const struct timeline *tl, const struct rank *k, int r, double unit_ns) {
    double begin = INFINITY, end = 0;
    for (int i = 0; i < k->nins; i++) {
        begin = fmin(begin, tl->start[r][i]);
        end = fmax(end, tl->end[r][i]);
    }
    return (struct span){k->nins ? microseconds(begin, unit_ns) : 0, microseconds(end, unit_ns)};
}

static void put_event(struct text *t, const char *category, int pid, int tid, struct span at) {
    put(t, ",\n{\"ph\":\"X\",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%lld,\"dur\":%lld", category, pid, tid,
        (long long)at.begin, (long long)(at.end - at.begin));
}

static void put_kernel(struct text *t, const struct program *p, const struct rank *k, const struct instr *in, int pid,
                       int step, struct span at) {
    int stream = in->lane + 1;
    put_event(t, "kernel", pid, pid + 1 + stream, at);
    put(t, ",\"name\":\"%s%s\",\"args\":{\"stream\":%d,\"correlation\":%d,\"stage\":%d",
        is_message(in->op) ? "ncclKernel_" : "", op_name[in->op], stream, FIRST_CORRELATION + step, in->stage);
    put_slice_args(t, &p->names, k, in);
}

/* Returns the step's end. A rank's steps never overlap, even if its clock was offset differently in each. */
static int64_t put_step(struct text *t, const struct program *p, const struct timeline *tl, double unit_ns, int r,
                        int step, int64_t after) {
    const struct rank *k = &p->rank[r];
    int pid = r + 1;
    struct span all = extent(tl, k, r, unit_ns);
    all.begin = all.begin < after ? after : all.begin;
    all.end = all.end < all.begin ? all.begin : all.end;
    struct span launch = {all.begin, all.begin};
    put_event(t, "user_annotation", pid, pid + 1, all);
    put(t, ",\"name\":\"ProfilerStep#%d\"}", step);
    put_event(t, "cuda_runtime", pid, pid + 1, launch);
    put(t, ",\"name\":\"cudaGraphLaunch\",\"args\":{\"correlation\":%d}}", FIRST_CORRELATION + step);
    for (int i = 0; i < k->nins; i++)
        put_kernel(t, p, k, &k->ins[i], pid, step,
                   (struct span){microseconds(tl->start[r][i], unit_ns), microseconds(tl->end[r][i], unit_ns)});
    return all.end;
}

void emit_hta(struct text *out, const struct program *p, const struct steps *steps, const char *unit, int r) {
    const struct rank *k = &p->rank[r];
    int pid = r + 1;
    double unit_ns = trace_unit(unit, steps);
    put(out, "{\"schemaVersion\":1,\"distributedInfo\":{\"backend\":\"nccl\",\"rank\": %d,\"world_size\":%d},\n", r,
        p->workers);
    put(out, "\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}",
        pid, r);
    put(out, ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"launches\"}}", pid,
        pid + 1);
    for (int l = 0; l < k->nlanes; l++) {
        put(out, ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"stream %d ", pid,
            pid + 2 + l, l + 1);
        put_lane(out, p, &k->lane[l]);
        put(out, "\"}}");
    }
    int64_t after = 0;
    for (int i = 0; i < steps->n; i++)
        after = put_step(out, p, &steps->of[i], unit_ns, r, steps->number ? steps->number[i] : 1, after);
    put(out, "\n]}\n");
}
