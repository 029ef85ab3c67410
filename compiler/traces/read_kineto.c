/* Reads the trace of PyTorch's profiler (Kineto), in Chrome's JSON, as far as it tells of a pipeline's run.
 *
 * torch.distributed.pipelining wraps each action in a range of record_function. The runtime of multi-stage schedules
 * names them PP:0F3, PP:1SEND_F3 or PP:(0F3;1B2)OVERLAP_F_B, as in its CSV; ScheduleGPipe names them Forward 3 and
 * Backward 3, with the messages inside. Schedule1F1B names nothing. A range is an event of category user_annotation;
 * the GPU's copy of it, gpu_user_annotation, lacks kernels that autograd's threads launched, and is not used.
 *
 * Times are microseconds with three decimals, after baseTimeNanoseconds. They are bounded so that no sum or difference
 * of them overflows. */
#include "kineto.h"
#include "base/read_json.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char key[] = "\"traceEvents\"";
static const int64_t LATEST = 6000000000000000000; /* nanoseconds */

bool is_kineto(const char *s, size_t n) { return memmem(s, n, key, sizeof key - 1) != NULL; }

/* An event while it is read */
struct event {
    const char *phase, *category, *name;
    double ts, dur; /* microseconds; NAN: absent */
    int64_t correlation;
};

static void add_range(struct range_list *ranges, struct range range) {
    GROW(ranges->of, ranges->cap, ranges->n + 1);
    ranges->of[ranges->n++] = range;
}

static void add_link(struct link_list *links, struct linked linked) {
    GROW(links->of, links->cap, links->n + 1);
    links->of[links->n++] = linked;
}

/* ---- names of actions ---- */

/* Reads a number; -1: there is none, or it is too large. */
static int32_t count_at(const char **p) {
    int64_t x = 0;
    const char *from = *p;
    for (; isdigit((unsigned char)**p); ++*p)
        x = x < INT32_MAX ? x * 10 + (**p - '0') : x;
    return *p == from || x >= INT32_MAX ? -1 : (int32_t)x;
}

/* Adds the action at *p, such as 0F3 or 1UNSHARD, with the times of `range`. Returns false if it is none. */
static bool add_one_action(struct range_list *ranges, const char **p, struct range range) {
    static const struct {
        const char *word;
        int op; /* OP_none: it takes no time of the schedule's */
    } action[] = {{"F", OP_F},
                  {"B", OP_B},
                  {"I", OP_I},
                  {"W", OP_W},
                  {"SEND_F", OP_SEND_F},
                  {"RECV_F", OP_RECV_F},
                  {"SEND_B", OP_SEND_B},
                  {"RECV_B", OP_RECV_B},
                  {"WAIT_SEND_F", OP_none},
                  {"UNSHARD", OP_none},
                  {"RESHARD", OP_none},
                  {"WAIT_SEND_B", OP_none},
                  {"REDUCE_GRAD", OP_none},
                  {"WAIT_REDUCE_GRAD", OP_none}};
    range.stage = count_at(p);
    const char *word = *p;
    while (isupper((unsigned char)**p) || **p == '_')
        ++*p;
    size_t n = (size_t)(*p - word);
    range.batch = count_at(p);
    for (size_t i = 0; i < sizeof action / sizeof *action; i++) {
        if (strlen(action[i].word) != n || memcmp(action[i].word, word, n) != 0)
            continue;
        range.op = action[i].op;
        if (range.op != OP_none)
            add_range(ranges, range);
        return range.stage >= 0 && (range.op == OP_none || range.batch >= 0);
    }
    return false;
}

/* Adds the one or two actions of a range named PP:…; dies if the name is not understood. */
static void add_actions(struct kineto *kineto, const char *name, struct range range) {
    const char *p = name;
    bool pair = *p == '(';
    p += pair;
    bool good = add_one_action(&kineto->action, &p, range);
    if (pair)
        good = good && *p++ == ';' && add_one_action(&kineto->action, &p, range) && strcmp(p, ")OVERLAP_F_B") == 0;
    else
        good = good && !*p;
    if (!good)
        die("%s: the range PP:%s is not an action of torch.distributed.pipelining that Pianola knows",
            kineto->recording.file, name);
}

/* Returns the number after a prefix, if the name is nothing else; -1: it is not. */
static int32_t number_after(const char *name, const char *prefix) {
    size_t n = strlen(prefix);
    const char *p = name + n;
    int32_t number = strncmp(name, prefix, n) == 0 ? count_at(&p) : -1;
    return number >= 0 && !*p ? number : -1;
}

/* ---- events ---- */

static void add_annotation(struct kineto *kineto, struct range_list *single, const char *name, struct range range) {
    static const char update[] = "Optimizer.step#";
    int32_t forward = number_after(name, "Forward "), backward = number_after(name, "Backward ");
    range.batch = number_after(name, "ProfilerStep#");
    if (strncmp(name, "PP:", 3) == 0)
        add_actions(kineto, name + 3, range);
    else if (range.batch >= 0)
        add_range(&kineto->steps, range);
    else if (forward >= 0 || backward >= 0)
        add_range(single, (struct range){range.start, range.end, -1, forward >= 0 ? forward : backward,
                                         forward >= 0 ? OP_F : OP_B});
    else if (strcmp(name, "gloo:recv") == 0)
        add_range(&kineto->waits, range);
    else if (strncmp(name, update, sizeof update - 1) == 0)
        add_range(&kineto->updates, range);
}

/* single: the actions of a schedule of one stage per rank */
static void add_event(struct kineto *kineto, struct range_list *single, const struct event *event) {
    static const char *const gpu[] = {"kernel", "gpu_memcpy", "gpu_memset"};
    if (!event->phase || strcmp(event->phase, "X") != 0 || !event->category || !event->name)
        return;
    if (!(event->ts > -1e15 && event->ts < 4e15 && event->dur >= 0 && event->dur < 1e15))
        die("%s: the event %s has no valid ts and dur", kineto->recording.file, event->name);
    struct range range = {.start = llround(1000 * event->ts)};
    range.end = range.start + llround(1000 * event->dur);
    if (strcmp(event->category, "user_annotation") == 0)
        add_annotation(kineto, single, event->name, range);
    else if (strcmp(event->name, "c10d::send") == 0)
        add_range(&kineto->sends, range);
    else if (strcmp(event->name, "c10d::recv_") == 0)
        add_range(&kineto->receives, range);
    else if (event->correlation >= 0) {
        struct linked linked = {range.start, range.end, event->correlation, strstr(event->name, "nccl") != NULL};
        bool on_gpu = false;
        for (int i = 0; i < 3; i++)
            on_gpu |= strcmp(event->category, gpu[i]) == 0;
        if (on_gpu)
            add_link(&kineto->kernels, linked);
        else if (strcmp(event->category, "cuda_runtime") == 0 || strcmp(event->category, "cuda_driver") == 0)
            add_link(&kineto->launches, linked);
    }
}

static int64_t read_correlation(struct json_in *j) {
    int64_t found = -1;
    for (json_open(j, '{'); json_more(j, '}');) {
        size_t n;
        const char *name = json_any_name(j, &n);
        char c = json_peek(j);
        if (strcmp(name, "correlation") == 0 && c >= '0' && c <= '9')
            found = json_number(j);
        else
            json_skip(j);
    }
    return found;
}

static const char *text_or_null(struct json_in *j) {
    if (json_peek(j) == '"')
        return json_string_or_null(j);
    json_skip(j);
    return NULL;
}

static void read_event(struct kineto *kineto, struct range_list *single, struct json_in *j) {
    struct event event = {.ts = NAN, .dur = NAN, .correlation = -1};
    for (json_open(j, '{'); json_more(j, '}');) {
        const char *name = json_name(j);
        if (strcmp(name, "ph") == 0)
            event.phase = text_or_null(j);
        else if (strcmp(name, "cat") == 0)
            event.category = text_or_null(j);
        else if (strcmp(name, "name") == 0)
            event.name = text_or_null(j);
        else if (strcmp(name, "ts") == 0)
            event.ts = json_real(j);
        else if (strcmp(name, "dur") == 0)
            event.dur = json_real(j);
        else if (strcmp(name, "args") == 0 && json_peek(j) == '{')
            event.correlation = read_correlation(j);
        else
            json_skip(j);
    }
    add_event(kineto, single, &event);
}

/* ---- the file ---- */

static void read_distributed(struct kineto *kineto, struct json_in *j) {
    for (json_open(j, '{'); json_more(j, '}');) {
        const char *name = json_name(j);
        if (strcmp(name, "rank") == 0)
            kineto->recording.rank = (int)json_number(j);
        else if (strcmp(name, "backend") == 0)
            kineto->backend = text_or_null(j);
        else
            json_skip(j);
    }
}

static int by_range_start(const void *x, const void *y) {
    const struct range *a = x, *b = y;
    return (a->start > b->start) - (a->start < b->start);
}

static int by_range_end(const void *x, const void *y) {
    const struct range *a = x, *b = y;
    return (a->end > b->end) - (a->end < b->end);
}

static int by_launch_start(const void *x, const void *y) {
    const struct linked *a = x, *b = y;
    return (a->start > b->start) - (a->start < b->start);
}

static int by_correlation(const void *x, const void *y) {
    const struct linked *a = x, *b = y;
    return (a->correlation > b->correlation) - (a->correlation < b->correlation);
}

static void rebase(const struct kineto *kineto, int64_t *start, int64_t *end, int64_t base) {
    *start += base;
    *end += base;
    if (*end > LATEST)
        die("%s: its times are later than the year 2160", kineto->recording.file);
}

/* Puts all times on the common base, and sorts. */
static void finish(struct kineto *kineto, int64_t base) {
    struct range_list *all[] = {&kineto->action, &kineto->steps,    &kineto->updates,
                                &kineto->sends,  &kineto->receives, &kineto->waits};
    struct range_list *arrivals = &kineto->arrivals;
    struct link_list *linked[] = {&kineto->launches, &kineto->kernels};
    for (int k = 0; k < 6; k++) {
        for (size_t i = 0; i < all[k]->n; i++)
            rebase(kineto, &all[k]->of[i].start, &all[k]->of[i].end, base);
        sort(all[k]->of, all[k]->n, sizeof *all[k]->of, by_range_start);
    }
    *arrivals = (struct range_list){NEW(struct range, kineto->waits.n), kineto->waits.n, kineto->waits.n};
    if (arrivals->n)
        memcpy(arrivals->of, kineto->waits.of, sizeof *arrivals->of * arrivals->n);
    sort(arrivals->of, arrivals->n, sizeof *arrivals->of, by_range_end);
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < linked[k]->n; i++)
            rebase(kineto, &linked[k]->of[i].start, &linked[k]->of[i].end, base);
        sort(linked[k]->of, linked[k]->n, sizeof *linked[k]->of, k ? by_correlation : by_launch_start);
    }
}

struct recording *parse_kineto(const char *file, char *s, size_t n) {
    struct kineto *kineto = NEW(struct kineto, 1);
    struct json_in j = {.file = file, .from = s, .at = s, .end = s + n};
    struct range_list single = {0};
    double base = 0;
    kineto->recording = (struct recording){file, -1};
    for (json_open(&j, '{'); json_more(&j, '}');) {
        const char *name = json_name(&j);
        if (strcmp(name, "traceEvents") == 0)
            for (json_open(&j, '['); json_more(&j, ']');)
                read_event(kineto, &single, &j);
        else if (strcmp(name, "distributedInfo") == 0)
            read_distributed(kineto, &j);
        else if (strcmp(name, "baseTimeNanoseconds") == 0)
            base = json_real(&j);
        else
            json_skip(&j);
    }
    json_close(&j);
    if (!(base >= 0 && base < 4e18))
        die("%s: baseTimeNanoseconds is not a valid time", file);
    kineto->named = kineto->action.n > 0;
    if (!kineto->named)
        kineto->action = single;
    if (!kineto->action.n)
        die("%s: has no range of torch.distributed.pipelining, such as PP:0F0; Schedule1F1B records none: write the "
            "schedule with `pianola show --format torch-csv` and run it with _PipelineScheduleRuntime, or import one "
            "of PyTorch's other schedules",
            file);
    if (kineto->recording.rank < 0)
        kineto->recording.rank = rank_in_file_name(file);
    if (kineto->recording.rank < 0)
        die("%s: its distributedInfo has no rank; put the rank into its name, such as rank0.json for rank 0", file);
    if (kineto->kernels.n ? !kineto->launches.n : kineto->backend && strstr(kineto->backend, "nccl"))
        die("%s: has no GPU %s: profile with ProfilerActivity.CPU and ProfilerActivity.CUDA", file,
            kineto->kernels.n ? "kernel launches" : "kernels");
    finish(kineto, (int64_t)base);
    return &kineto->recording;
}
