/* Reads Chrome's trace JSON as Perfetto's importer does: tids are global and never a pid, and times are microseconds
 * with three decimals. Slices of a thread nest; a flow's ends match by category, name and id, and bind to the innermost
 * open slice. */
#include "trace_reader.h"
#include "base/text.h"
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON: a value's text and the members of an object. Any breach of the grammar fails. ---- */

static const char *end_of_value(const char *p, const char *end);

static const char *end_of_string(const char *p, const char *end) {
    cr_assert(p < end && *p == '"', "a string should stand here: %.40s", p);
    for (p++; p < end && *p != '"'; p++) {
        cr_assert((unsigned char)*p >= ' ', "a control character in a string");
        p += *p == '\\';
    }
    cr_assert(p < end, "a string without an end");
    return p + 1;
}

static const char *space(const char *p, const char *end) {
    while (p < end && isspace((unsigned char)*p))
        p++;
    return p;
}

static const char *end_of_list(const char *p, const char *end, char close, bool keys) {
    p = space(p + 1, end);
    for (bool more = *p != close; more; p = more ? space(p + 1, end) : p) {
        if (keys) {
            p = space(end_of_string(p, end), end);
            cr_assert(*p == ':', "a colon should stand here: %.40s", p);
            p = space(p + 1, end);
        }
        p = space(end_of_value(p, end), end);
        more = p < end && *p == ',';
    }
    cr_assert(p < end && *p == close, "%c should stand here: %.40s", close, p);
    return p + 1;
}

static const char *end_of_value(const char *p, const char *end) {
    if (*p == '{' || *p == '[')
        return end_of_list(p, end, *p == '{' ? '}' : ']', *p == '{');
    if (*p == '"')
        return end_of_string(p, end);
    char *stop;
    strtod(p, &stop);
    cr_assert(stop > p && (*p == '-' || isdigit((unsigned char)*p)), "a number should stand here: %.40s", p);
    return stop;
}

/* Returns the value of a member of the object at p, or NULL. */
static const char *member(const char *p, const char *key) {
    const char *end = p + strlen(p);
    for (p = space(p + 1, end); *p == '"'; p = space(p, end)) {
        size_t n = (size_t)(end_of_string(p, end) - p) - 2;
        bool found = strlen(key) == n && memcmp(p + 1, key, n) == 0;
        p = space(space(p + n + 2, end) + 1, end);
        if (found)
            return p;
        p = end_of_value(p, end);
        p += *p == ',';
    }
    return NULL;
}

static int64_t integer(const char *object, const char *key, int64_t otherwise) {
    const char *v = member(object, key);
    return v ? strtoll(v, NULL, 10) : otherwise;
}

static void word(const char *object, const char *key, char *out, size_t size) {
    const char *v = member(object, key);
    cr_assert(v && *v == '"', "no %s in %.80s", key, object);
    size_t n = (size_t)(end_of_string(v, v + strlen(v)) - v) - 2;
    cr_assert_lt(n, size);
    memcpy(out, v + 1, n);
    out[n] = 0;
}

static int64_t nanoseconds(const char *object, const char *key) {
    const char *v = member(object, key);
    char *dot;
    cr_assert(v && *v != '-', "no %s, or one below 0, in %.120s", key, object);
    int64_t us = strtoll(v, &dot, 10);
    cr_assert(*dot == '.' && isdigit((unsigned char)dot[1]) && isdigit((unsigned char)dot[2]) &&
                  isdigit((unsigned char)dot[3]) && !isdigit((unsigned char)dot[4]),
              "%s should have three decimals: %.40s", key, v);
    return us * 1000 + strtoll(dot + 1, NULL, 10);
}

/* ---- events ---- */

struct threads {
    int64_t pid[256], tid[4096], of[4096]; /* of: index of the thread's process */
    char name[256][64];
    int npids, ntids;
    char lane[64]; /* the last lane, with its number */
};

static int process_of(const struct threads *t, const char *e) {
    for (int i = 0; i < t->npids; i++)
        if (t->pid[i] == integer(e, "pid", -1))
            return i;
    cr_assert_fail("a process without a name: %.120s", e);
    return -1;
}

static int thread_of(const struct threads *t, const char *e) {
    for (int i = 0; i < t->ntids; i++)
        if (t->tid[i] == integer(e, "tid", -1)) {
            cr_assert_eq(t->of[i], process_of(t, e), "a tid that two processes use");
            return i;
        }
    cr_assert_fail("a thread without a name: %.120s", e);
    return -1;
}

static void read_name(struct threads *t, struct seen *z, const char *e) {
    char what[32];
    const char *args = member(e, "args");
    cr_assert_null(member(e, "ts"), "metadata has no time");
    word(e, "name", what, sizeof what);
    if (!strcmp(what, "process_name")) {
        t->pid[t->npids] = integer(e, "pid", -1);
        cr_assert(t->pid[t->npids] > 0);
        word(args, "name", t->name[t->npids++], 64);
    } else if (!strcmp(what, "thread_name")) {
        int64_t tid = integer(e, "tid", -1);
        cr_assert(tid > 0 && tid < (int64_t)1 << 32);
        for (int i = 0; i < t->ntids; i++)
            cr_assert_neq(t->tid[i], tid, "tid %lld twice", (long long)tid);
        t->tid[t->ntids] = tid;
        t->of[t->ntids++] = process_of(t, e);
        struct seen_track *k = &z->track[z->ntracks++];
        word(args, "name", k->name, sizeof k->name);
        memcpy(k->rank, t->name[process_of(t, e)], sizeof k->rank);
        if (z->ntracks > 1 && !strcmp(k[-1].rank, k->rank))
            cr_assert_lt(strcmp(t->lane, k->name), 0, "lanes %s and %s sort the wrong way", t->lane, k->name);
        memcpy(t->lane, k->name, sizeof t->lane);
        memmove(k->name, strchr(k->name, ' ') + 1, strlen(strchr(k->name, ' ')));
    }
}

static void read_slice(const struct threads *t, struct seen *z, const char *e) {
    struct seen_slice *s = &z->slice[z->nslices++];
    const char *args = member(e, "args");
    *s = (struct seen_slice){.track = thread_of(t, e), .t = nanoseconds(e, "ts")};
    s->end = s->t + nanoseconds(e, "dur");
    word(e, "name", s->name, sizeof s->name);
    word(e, "cat", s->category, sizeof s->category);
    s->step = integer(args, "step", -1);
    s->stage = integer(args, "stage", -1);
    s->mb = integer(args, "mb", -1);
    s->peer = integer(args, "peer", -1);
    s->bytes = integer(args, "bytes", -1);
    s->update = integer(args, "update", -1);
    s->version = integer(args, "version", -1);
}

/* Checks a flow event: the importer needs the beginning before the end, and binds both to the innermost open slice. */
static void read_flow(const struct threads *t, struct seen *z, const char *e, bool begins, char (*name)[64]) {
    int track = thread_of(t, e);
    int64_t at = nanoseconds(e, "ts"), id = integer(e, "id", 0);
    char key[64], kind[32], bp[4];
    struct seen_slice *open = NULL;
    for (struct seen_slice *s = z->slice; s < z->slice + z->nslices; s++)
        if (s->track == track && s->t <= at && at < s->end)
            open = s;
    cr_assert_not_null(open, "no slice is open for %.120s", e);
    word(e, "cat", key, 32);
    word(e, "name", kind, sizeof kind);
    strcat(key, kind);
    cr_assert(id > 0 && id < 100000);
    if (begins) {
        cr_assert_eq(name[id][0], 0, "flow %lld begins twice", (long long)id);
        memcpy(name[id], key, sizeof key);
        open->flow_out = id;
        return;
    }
    word(e, "bp", bp, sizeof bp);
    cr_assert_str_eq(bp, "e", "without it the end binds to the next slice");
    cr_assert_str_eq(name[id], key, "flow %lld ends without its beginning", (long long)id);
    open->flow_in = id;
}

struct seen read_chrome(const char *s, size_t n) {
    struct threads t = {0};
    size_t most = 1;
    int64_t last = 0;
    for (const char *p = s; (p = strchr(p, '\n')); p++)
        most++;
    struct seen z = {.track = NEW(struct seen_track, most),
                     .slice = NEW(struct seen_slice, most),
                     .level = NEW(struct seen_level, most),
                     .instant = NEW(struct seen_instant, most)};
    char(*name)[64] = alloc(100000 * 64);
    cr_assert_eq(*space(end_of_value(s, s + n), s + n), 0, "something stands behind the JSON");
    const char *e = member(s, "traceEvents");
    cr_assert_not_null(e);
    for (e = space(e + 1, s + n); *e == '{'; e = space(e + (*e == ','), s + n)) {
        size_t length = (size_t)(end_of_value(e, s + n) - e);
        char *event = copy_string(format("%.*s", (int)length, e)), phase[4];
        word(event, "ph", phase, sizeof phase);
        if (*phase == 'M')
            read_name(&t, &z, event);
        else if (*phase == 'C') {
            struct seen_level *l = &z.level[z.nlevels++];
            memcpy(l->rank, t.name[process_of(&t, event)], sizeof l->rank);
            l->t = nanoseconds(event, "ts");
            l->bytes = integer(member(event, "args"), "bytes", -1);
        } else if (*phase == 'i') {
            struct seen_instant *x = &z.instant[z.ninstants++];
            char scope[4];
            word(event, "s", scope, sizeof scope);
            cr_assert_str_eq(scope, "p", "else it is drawn on one lane");
            memcpy(x->rank, t.name[process_of(&t, event)], sizeof x->rank);
            word(event, "name", x->name, sizeof x->name);
            x->t = nanoseconds(event, "ts");
        } else {
            cr_assert(nanoseconds(event, "ts") >= last, "slices and flows stand by time");
            last = nanoseconds(event, "ts");
            if (*phase == 'X')
                read_slice(&t, &z, event);
            else
                read_flow(&t, &z, event, *phase == 's', name);
        }
        e += length;
    }
    for (int i = 0; i < t.npids; i++)
        for (int k = 0; k < t.ntids; k++)
            cr_assert_neq(t.pid[i], t.tid[k], "a tid that is a pid is that process's main thread");
    for (int i = 1; i < t.npids; i++)
        cr_assert_lt(strcmp(t.name[i - 1], t.name[i]), 0, "%s and %s sort the wrong way", t.name[i - 1], t.name[i]);
    return z;
}

/* ---- Holistic Trace Analysis: follows hta/common/trace.py and hta/utils/utils.py of 0.5 ---- */

static int64_t whole_microseconds(const char *e, const char *key) {
    const char *v = member(e, key);
    cr_assert(v && isdigit((unsigned char)*v) && !strchr(",}", *v) && v[strspn(v, "0123456789")] != '.',
              "%s should be whole, which HTA does not round: %.120s", key, e);
    return strtoll(v, NULL, 10) * 1000;
}

/* Checks the rank: the importer reads it from the first line that has it. */
static void expect_rank(const char *s, int rank) {
    static const char key[] = "\"rank\":";
    const char *at = strstr(s, key);
    cr_assert_not_null(at);
    at += strlen(key);
    cr_assert(isspace((unsigned char)*at) && atoi(at) == rank, "rank %d: %.40s", rank, at);
}

struct seen read_hta(const char *s, size_t n, int rank) {
    enum { MOST = 64 };
    struct {
        int64_t number, begin, end, correlation;
    } step[MOST] = {0};
    int nsteps = 0;
    size_t most = 1;
    for (const char *p = s; (p = strchr(p, '\n')); p++)
        most++;
    struct seen z = {.slice = NEW(struct seen_slice, most)};
    cr_assert_eq(*space(end_of_value(s, s + n), s + n), 0, "something stands behind the JSON");
    cr_assert_not_null(member(s, "distributedInfo"));
    expect_rank(s, rank);
    const char *e = member(s, "traceEvents");
    int place = 0; /* index of an event; 0 means none */
    for (e = space(e + 1, s + n); *e == '{'; e = space(e + (*e == ','), s + n), place++) {
        size_t length = (size_t)(end_of_value(e, s + n) - e);
        char *event = copy_string(format("%.*s", (int)length, e)), name[64], cat[32], phase[4];
        const char *args = member(event, "args");
        e += length;
        word(event, "ph", phase, sizeof phase);
        if (*phase == 'M')
            continue;
        word(event, "name", name, sizeof name);
        word(event, "cat", cat, sizeof cat);
        int64_t t = whole_microseconds(event, "ts"), end = t + whole_microseconds(event, "dur");
        int64_t correlation = args ? integer(args, "correlation", -1) : -1;
        if (!args || !member(args, "stream")) { /* runs on the CPU */
            if (!strncmp(name, "ProfilerStep#", 13)) {
                cr_assert(nsteps < MOST && (nsteps == 0 || step[nsteps - 1].end <= t), "%s crosses another", name);
                step[nsteps].number = atoi(name + 13);
                step[nsteps].begin = t;
                step[nsteps++].end = end;
            } else { /* a launch, within the current step */
                cr_assert(nsteps > 0 && step[nsteps - 1].begin <= t && t <= step[nsteps - 1].end && place > 0);
                cr_assert(correlation > INT16_MAX, "a column as narrow as that has no room for places");
                step[nsteps - 1].correlation = correlation;
            }
            continue;
        }
        cr_assert_str_eq(cat, "kernel");
        struct seen_slice *k = &z.slice[z.nslices++];
        *k = (struct seen_slice){.t = t, .end = end, .track = (int)integer(args, "stream", 0), .step = -1};
        cr_assert_gt(k->track, 0, "stream 0 has no steps");
        cr_assert(strlen(name) < sizeof k->name);
        strcpy(k->name, name);
        for (int i = 0; i < nsteps; i++)
            k->step = step[i].correlation == correlation ? step[i].number : k->step;
        k->stage = integer(args, "stage", -1);
        k->mb = integer(args, "mb", -1);
        k->peer = integer(args, "peer", -1);
    }
    return z;
}
