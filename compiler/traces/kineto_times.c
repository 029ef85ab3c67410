/* Gives a program's instructions their times in a Kineto trace.
 *
 * A trace with kernels is of GPUs: an action then lasts from the first to the last kernel (or copy) that was launched,
 * by any thread, while its range was open. NCCL's kernels count for messages, all others for jobs. A job without
 * kernels takes no time.
 *
 * Any other trace is of CPUs, where an action lasts as long as its range, except for the wait for its input. gloo's
 * receive ends when the wait for it does, which is the only sign of a message's arrival. A job begins at that time. If
 * it did not wait, its input had arrived at some unknown time before it began. */
#include "kineto.h"
#include <string.h>

/* A wait as short as this, in nanoseconds, only took the time of the call. */
enum { NO_WAIT = 100000 };

struct timing {
    const struct kineto *kineto;
    struct rank_run *run;
    int *count; /* per instruction: how often it has occurred, if the trace has no steps */
    int step, stage;
    int64_t free; /* end of the step's previous job */
};

/* ---- searches ---- */

/* Returns the index of the first of n keys that is at least `least`. The keys ascend; they are `stride` bytes apart. */
static size_t first_from(const int64_t *key, size_t n, size_t stride, int64_t least) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (*(const int64_t *)((const char *)key + mid * stride) < least)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Returns the index of the first range that starts at t or later. */
static size_t first_start(const struct range_list *ranges, int64_t t) {
    return ranges->n ? first_from(&ranges->of->start, ranges->n, sizeof *ranges->of, t) : 0;
}

/* The work that a range launched: one span for jobs, and the first and the last message */
struct launched {
    struct span job, first, last;
};

static void extend(struct span *span, const struct linked *linked) {
    if (!span_known(span))
        *span = (struct span){linked->start, linked->end, linked->end};
    span->start = linked->start < span->start ? linked->start : span->start;
    span->end = linked->end > span->end ? linked->end : span->end;
}

static struct launched launched_by(const struct kineto *kineto, const struct range *range) {
    struct launched found = {.job.end = -1, .first.end = -1, .last.end = -1};
    const struct link_list *launches = &kineto->launches, *kernels = &kineto->kernels;
    if (!launches->n || !kernels->n)
        return found;
    size_t i = first_from(&launches->of->start, launches->n, sizeof *launches->of, range->start);
    for (; i < launches->n && launches->of[i].start <= range->end; i++) {
        int64_t wanted = launches->of[i].correlation;
        size_t k = first_from(&kernels->of->correlation, kernels->n, sizeof *kernels->of, wanted);
        for (; k < kernels->n && kernels->of[k].correlation == wanted; k++) {
            const struct linked *kernel = &kernels->of[k];
            if (!kernel->message) {
                extend(&found.job, kernel);
                continue;
            }
            found.last = (struct span){kernel->start, kernel->end, kernel->end};
            if (!span_known(&found.first))
                found.first = found.last;
        }
    }
    return found;
}

/* ---- actions ---- */

/* Sets the time of the message at one end of a job whose range contains it. */
static void set_inner(const struct timing *timing, int32_t ins, const struct span *span) {
    if (ins >= 0 && span_known(span))
        set_span(timing->run, timing->step, ins, span->start, span->end);
}

static void time_gpu_job(struct timing *timing, const struct range *range, int32_t ins, int32_t input, int32_t output) {
    struct launched found = launched_by(timing->kineto, range);
    int64_t idle = range->start > timing->free ? range->start : timing->free;
    struct span job = span_known(&found.job) ? found.job : (struct span){idle, idle, idle};
    set_span(timing->run, timing->step, ins, job.start, job.end);
    timing->free = job.end;
    if (!timing->kineto->named) {
        set_inner(timing, input, &found.first);
        set_inner(timing, output, &found.last);
    }
}

/* Times the messages that a job's range contains. Returns when the job ends: when it posts its output. */
static int64_t time_inner(const struct timing *timing, const struct range *range, int64_t begin, int32_t input,
                          int32_t output) {
    const struct range_list *sends = &timing->kineto->sends, *receives = &timing->kineto->receives;
    size_t send = first_start(sends, range->start), receive = first_start(receives, range->start);
    if (receive < receives->n && receives->of[receive].start < range->end)
        set_inner(timing, input, &(struct span){receives->of[receive].start, begin, begin});
    if (output < 0 || send == sends->n || sends->of[send].start >= range->end)
        return range->end;
    set_inner(timing, output, &(struct span){sends->of[send].start, sends->of[send].end, 0});
    return sends->of[send].start;
}

/* Records when the rank became free, for a receive that its job did not wait for. */
static void note_free(const struct timing *timing, int32_t input) {
    struct span *span = &timing->run->step[timing->step].at[input];
    if (timing->free < span->end)
        span->free = timing->free > span->start ? timing->free : span->start;
}

static void time_cpu_job(struct timing *timing, const struct range *range, int32_t ins, int32_t input, int32_t output) {
    const struct range_list *arrivals = &timing->kineto->arrivals;
    size_t after = arrivals->n ? first_from(&arrivals->of->end, arrivals->n, sizeof *arrivals->of, range->end + 1) : 0;
    int64_t arrived = after && input >= 0 ? arrivals->of[after - 1].end : range->start;
    int64_t begin = arrived > range->start ? arrived : range->start, end = range->end;
    if (!timing->kineto->named)
        end = time_inner(timing, range, begin, input, output);
    if (input >= 0 && begin - range->start < NO_WAIT)
        note_free(timing, input);
    set_span(timing->run, timing->step, ins, begin, end);
    timing->free = end > timing->free ? end : timing->free;
}

/* Times a message that has a range of its own. On a CPU, a receive ends with the last wait for what it posted. */
static void time_message(const struct timing *timing, const struct range *range, int32_t ins) {
    const struct range_list *waits = &timing->kineto->waits;
    struct span span = {range->start, range->end, range->end};
    if (timing->kineto->kernels.n) {
        struct launched found = launched_by(timing->kineto, range);
        if (span_known(&found.first))
            span = (struct span){found.first.start, found.last.end, found.last.end};
    } else if (range->op == OP_RECV_F || range->op == OP_RECV_B)
        for (size_t i = first_start(waits, range->start); i < waits->n && waits->of[i].start <= range->end; i++)
            span.end = waits->of[i].end > span.end ? waits->of[i].end : span.end;
    set_span(timing->run, timing->step, ins, span.start, span.end);
}

/* Returns the instruction of an action; dies if the rank has none. PyTorch names a receive by the stage that needs it,
 * not by the one that the tensor comes from. */
static int32_t ins_of(const struct timing *timing, const struct range *range) {
    const struct rank_run *run = timing->run;
    int stage = range->stage >= 0 ? range->stage : timing->stage;
    int from = stage + (range->op == OP_RECV_B) - (range->op == OP_RECV_F);
    int32_t ins = find_ins(&run->index, range->op, from, range->batch);
    if (ins < 0)
        die("%s: has %d%s%d, which the schedule does not have on rank %d; %s", run->of->file, stage, op_name[range->op],
            range->batch, run->r, trace_advice);
    return ins;
}

/* Returns the step of an action: the one whose range contains its beginning, or else the one that its count tells. -1:
 * none. */
static int step_at(struct timing *timing, const struct range *range, int32_t ins) {
    const struct range_list *steps = &timing->kineto->steps;
    if (steps->n) {
        size_t after = first_start(steps, range->start + 1);
        return after && range->start < steps->of[after - 1].end ? (int)after - 1 : -1;
    }
    int step = timing->count[ins]++;
    if (step == timing->run->nsteps)
        add_step(timing->run, step + 1);
    return step;
}

static void time_action(struct timing *timing, const struct range *range) {
    const struct ins_index *index = &timing->run->index;
    int32_t ins = ins_of(timing, range);
    const struct instr *x = &index->rank->ins[ins];
    int step = step_at(timing, range, ins);
    if (step < 0)
        return;
    if (step != timing->step)
        timing->free = INT64_MIN;
    timing->step = step;
    if (!is_job(x->op)) {
        time_message(timing, range, ins);
        return;
    }
    int32_t input = ins_before(index, x->op, x->stage, x->batch), output = ins_after(index, x->op, x->stage, x->batch);
    (timing->kineto->kernels.n ? time_gpu_job : time_cpu_job)(timing, range, ins, input, output);
}

/* ---- updates ---- */

/* Returns the optimizer's time in a step, or the end of its last job if it has none. */
static struct span update_in(const struct timing *timing, int k) {
    const struct kineto *kineto = timing->kineto;
    const struct rank *rank = timing->run->index.rank;
    int64_t last = INT64_MIN;
    for (int32_t i = 0; i < rank->nins; i++) {
        const struct span *span = &timing->run->step[k].at[i];
        if (is_job(rank->ins[i].op) && span_known(span) && span->end > last)
            last = span->end;
    }
    int64_t until = (size_t)k + 1 < kineto->steps.n ? kineto->steps.of[k + 1].start : INT64_MAX;
    size_t at = first_start(&kineto->updates, kineto->steps.n ? kineto->steps.of[k].start : last);
    struct span span = {last, last, last};
    if (at < kineto->updates.n && kineto->updates.of[at].start < until) {
        const struct range *range = &kineto->updates.of[at];
        struct span job =
            kineto->kernels.n ? launched_by(kineto, range).job : (struct span){range->start, range->end, range->end};
        span = span_known(&job) ? job : span;
    }
    return span;
}

/* Gives the optimizer's time to the rank's last update: PyTorch updates all stages of a rank at once. */
static void time_updates(struct timing *timing) {
    const struct rank *rank = timing->run->index.rank;
    int32_t last = -1;
    for (int32_t i = 0; i < rank->nins; i++)
        last = rank->ins[i].op == OP_U ? i : last;
    for (int k = 0; last >= 0 && k < timing->run->nsteps; k++) {
        struct span span = update_in(timing, k);
        for (int32_t i = 0; i <= last; i++)
            if (rank->ins[i].op == OP_U)
                set_span(timing->run, k, i, span.start, i == last ? span.end : span.start);
    }
}

/* Reports that a rank's waits cannot be told from its work, since its backend records no receives. */
static void report_no_waits(const struct kineto *kineto, const struct rank *rank) {
    bool receives = false;
    for (int32_t i = 0; i < rank->nins; i++)
        receives |= is_recv(rank->ins[i].op);
    if (receives && !kineto->kernels.n && !kineto->waits.n)
        fprintf(stderr, "pianola: %s: has no gloo:recv, so its jobs include the waits for their inputs\n",
                kineto->recording.file);
}

void time_kineto(struct recording *recording, struct rank_run *run) {
    const struct kineto *kineto = (const struct kineto *)recording;
    const struct rank *rank = run->index.rank;
    struct timing timing = {.kineto = kineto, .run = run, .count = NEW(int, rank->nins), .step = -1, .stage = -1};
    for (int32_t i = 0; i < rank->nins; i++)
        if (is_job(rank->ins[i].op) && timing.stage < 0)
            timing.stage = rank->ins[i].stage;
    for (size_t k = 0; k < kineto->steps.n; k++)
        add_step(run, kineto->steps.of[k].batch);
    for (size_t i = 0; i < kineto->action.n; i++)
        time_action(&timing, &kineto->action.of[i]);
    time_updates(&timing);
    report_no_waits(kineto, rank);
}
