/* Traces for viewers, read back by the rules of their importers (trace_reader.h) and compared with the timeline. */
#include "trace_reader.h"
#include "cli/pipeline.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct compile compiled(const char *schedule, const char *model, const char *cluster, enum lanes_per lanes) {
    struct compile c = {.args = {.schedule = schedule, .model = model, .cluster = cluster, .lanes = lanes}};
    compile_all(&c, "");
    return c;
}

/* Writes a cluster file with these fields. */
static const char *cluster_of(const char *fields) {
    char *path = copy_string("/tmp/pianola-cluster-XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    dprintf(fd, "return cluster { %s }\n", fields);
    close(fd);
    return path;
}

static struct seen chrome(const struct compile *c) {
    struct text t = {0};
    emit_chrome(&t, c->program, &c->steps, c->report->unit);
    return read_chrome(t.s, t.n);
}

static struct seen pftrace(const struct compile *c) {
    struct text t = {0};
    emit_pftrace(&t, c->program, &c->steps, c->report->unit);
    return read_pftrace(t.s, t.n);
}

/* Slices of one track, ordered by beginning, are disjoint or nested. */
static void expect_nested(const struct seen *z) {
    const struct seen_slice **last = NEW(const struct seen_slice *, z->ntracks);
    for (const struct seen_slice *s = z->slice; s < z->slice + z->nslices; s++) {
        const struct seen_slice *before = last[s->track];
        cr_assert_gt(s->end, s->t, "%s takes no time", s->name);
        cr_assert(!before || before->end <= s->t || (before->t <= s->t && s->end <= before->end),
                  "%s and %s cross on %s", before ? before->name : "", s->name, z->track[s->track].name);
        last[s->track] = s;
    }
}

/* Every message has an arrow, from the slice of its send to the slice of its receive. */
static void expect_flows(const struct seen *z, const struct program *p, int nsteps) {
    const struct seen_slice **from = NEW(const struct seen_slice *, p->nmsgs *nsteps + 1);
    int arrows = 0;
    for (const struct seen_slice *s = z->slice; s < z->slice + z->nslices; s++)
        if (s->flow_out)
            from[s->flow_out] = s;
    for (const struct seen_slice *s = z->slice; s < z->slice + z->nslices; s++) {
        if (!s->flow_in)
            continue;
        const struct seen_slice *f = from[s->flow_in];
        cr_assert_not_null(f);
        cr_assert_leq(f->t, s->t);
        cr_assert(f->stage == s->stage || f->mb == s->mb, "%s to %s", f->name, s->name);
        cr_assert_eq(f->step, s->step);
        cr_assert_eq(f->bytes, s->bytes);
        cr_assert_str_neq(z->track[f->track].rank, z->track[s->track].rank);
        arrows++;
    }
    int sends = 0;
    for (int r = 0; r < p->workers; r++)
        for (int i = 0; i < p->rank[r].nins; i++)
            sends += p->rank[r].ins[i].msg >= 0 && op_lane[p->rank[r].ins[i].op] == LANE_SEND;
    cr_assert_eq(arrows, sends * nsteps);
}

/* Slices of that name begin and end as in the steps, in the same order. */
static size_t expect_slices(const struct seen *z, const struct steps *steps, const char *name, int r, int i,
                            const struct instr *in, double unit_ns) {
    int k = 0;
    for (const struct seen_slice *s = z->slice; s < z->slice + z->nslices; s++)
        if (!strcmp(s->name, name)) {
            cr_assert_lt(k, steps->n, "%s once more", name);
            cr_assert(s->stage == in->stage && s->mb == in->batch && s->peer == -1);
            cr_assert_eq(s->step, steps->number ? steps->number[k] : -1);
            cr_assert_str_eq(z->track[s->track].name, "compute");
            cr_assert_float_eq((double)s->t, steps->of[k].start[r][i] * unit_ns, 1000, "%s begins", name);
            cr_assert_float_eq((double)s->end, steps->of[k].end[r][i] * unit_ns, 1000, "%s ends", name);
            k++;
        }
    return (size_t)k;
}

/* Every instruction is a slice with its name and numbers; jobs lie where the timelines have them. */
static void expect_instructions(const struct seen *z, const struct compile *c, double unit_ns) {
    size_t n = 0, jobs = 0, nsteps = (size_t)c->steps.n;
    for (int r = 0; r < c->program->workers; r++) {
        n += (size_t)c->program->rank[r].nins;
        for (int i = 0; i < c->program->rank[r].nins; i++) {
            const struct instr *in = &c->program->rank[r].ins[i];
            if (in->op > OP_W)
                continue;
            const char *name = job_name(NULL, in->stage, in->batch, in->op);
            if (in->last)
                name = format("%s[%d/%d]", name, in->part, in->last + 1);
            size_t slices = expect_slices(z, &c->steps, name, r, i, in, unit_ns);
            jobs += in->part == in->last ? slices : 0;
        }
    }
    cr_assert_eq(z->nslices, n * nsteps);
    cr_assert_eq(jobs, (size_t)c->spec->njobs * nsteps);
}

/* A rank's memory begins and ends with its permanent buffers, and never exceeds its plan. */
static void expect_levels(const struct seen *z, const struct program *p) {
    int rank = -1;
    for (size_t i = 0; i < z->nlevels; i++) {
        const struct seen_level *l = &z->level[i];
        bool first = i == 0 || strcmp(l[-1].rank, l->rank), last = i + 1 == z->nlevels || strcmp(l->rank, l[1].rank);
        static int64_t stays;
        rank += first;
        cr_assert(first ? l->t == 0 : l->t > l[-1].t && l->bytes != l[-1].bytes);
        cr_assert(l->bytes >= 0 && l->bytes <= p->rank[rank].arena, "%s: %lld of %lld", l->rank, (long long)l->bytes,
                  (long long)p->rank[rank].arena);
        stays = first ? 0 : stays;
        if (last && !first)
            for (int b = 0; b < p->rank[rank].nbufs; b++)
                stays += p->rank[rank].buf[b].kind == K_weight && p->rank[rank].buf[b].inst < 0
                             ? p->rank[rank].buf[b].bytes
                             : 0;
        cr_assert_geq(l->bytes, last ? stays : 0);
    }
    cr_assert_eq(rank, p->workers - 1);
}

static void expect_same(const struct seen *a, const struct seen *b) {
    cr_assert(a->ntracks == b->ntracks && a->nslices == b->nslices && a->nlevels == b->nlevels);
    for (size_t i = 0; i < a->ntracks; i++)
        cr_assert(!strcmp(a->track[i].name, b->track[i].name) && !strcmp(a->track[i].rank, b->track[i].rank));
    for (size_t i = 0; i < a->nslices; i++) {
        const struct seen_slice *x = &a->slice[i], *y = &b->slice[i];
        cr_assert(x->track == y->track && x->t == y->t && x->end == y->end && !strcmp(x->name, y->name) &&
                      !strcmp(x->category, y->category) && x->step == y->step && x->stage == y->stage &&
                      x->mb == y->mb && x->peer == y->peer && x->bytes == y->bytes && x->flow_in == y->flow_in &&
                      x->update == y->update && x->version == y->version && x->flow_out == y->flow_out,
                  "slice %zu: %s, %s", i, x->name, y->name);
    }
    cr_assert_eq(a->ninstants, b->ninstants);
    for (size_t i = 0; i < a->ninstants; i++)
        cr_assert(!strcmp(a->instant[i].rank, b->instant[i].rank) && !strcmp(a->instant[i].name, b->instant[i].name) &&
                  a->instant[i].t == b->instant[i].t);
    for (size_t i = 0; i < a->nlevels; i++)
        cr_assert(!strcmp(a->level[i].rank, b->level[i].rank) && a->level[i].t == b->level[i].t &&
                  a->level[i].bytes == b->level[i].bytes);
}

static void expect_good(struct compile c, double unit_ns) {
    struct seen json = chrome(&c), proto = pftrace(&c);
    expect_nested(&json);
    expect_flows(&json, c.program, c.steps.n);
    expect_instructions(&json, &c, unit_ns);
    expect_levels(&json, c.program);
    expect_same(&json, &proto);
}

#define S "schedules/"
Test(emit_trace, free_links) { expect_good(compiled(S "1f1b.lua", NULL, NULL, PER_EDGE), 1e6); }
Test(emit_trace, overlapping_pairs) { expect_good(compiled(S "dualpipev.lua", NULL, NULL, PER_EDGE), 1e6); }
Test(emit_trace, weights_and_reductions) {
    expect_good(compiled(S "fsdp.lua", NULL, NULL, PER_EDGE), 1e6);
    expect_good(compiled(S "replicated.lua", NULL, NULL, PER_EDGE), 1e6);
    expect_good(compiled(S "lpp.lua", NULL, NULL, PER_EDGE), 1e6);
    expect_good(compiled(S "cuckoo.lua", NULL, NULL, PER_EDGE), 1e6);
    expect_good(compiled(S "apart.lua", NULL, NULL, PER_RANK), 1e6);
}
Test(emit_trace, links_that_take_time) {
    const char *slow = cluster_of("link = function(src, dst) return 0.25, 2 end");
    const char *real = cluster_of("link = function(src, dst) return 1e-5, 1e9 end, flops = 1e10");
    for (int lanes = PER_EDGE; lanes <= PER_RANK; lanes++) {
        expect_good(compiled(S "zb_h1.lua", NULL, slow, (enum lanes_per)lanes), 1e6);
        expect_good(compiled(S "lpp.lua", S "models/gpt.lua", real, (enum lanes_per)lanes), 1e9);
    }
    unlink(slow);
    unlink(real);
}
Test(emit_trace, flop) { expect_good(compiled(S "1f1b.lua", S "models/gpt.lua", NULL, PER_EDGE), 1); }
Test(emit_trace, free_links_on_coarse_lanes) {
    expect_good(compiled(S "chimera.lua", NULL, NULL, PER_PEER), 1e6);
    expect_good(compiled(S "hybrid.lua", NULL, NULL, PER_RANK), 1e6);
}
Test(emit_trace, more_than_ten_ranks) {
    struct compile c = {.args = {.schedule = S "gpipe.lua", .set = (const char *[]){"workers=12"}, .nset = 1}};
    compile_all(&c, "");
    expect_good(c, 1e6);
    cr_assert_str_eq(chrome(&c).track[0].rank, "rank 00");
}

/* Makes three steps, each longer than the previous one, with gaps between them, as a run is measured in seconds. */
static void measure(struct compile *c) {
    static const int number[] = {7, 8, 10};
    struct timeline *of = NEW(struct timeline, 3);
    double at = 0;
    for (int k = 0; k < 3; at = of[k++].makespan + 2e-6) {
        of[k] = (struct timeline){NEW(double *, c->program->workers), NEW(double *, c->program->workers),
                                  .launch = LAUNCH_LANE};
        for (int r = 0; r < c->program->workers; r++) {
            int n = c->program->rank[r].nins;
            of[k].start[r] = NEW(double, n);
            of[k].end[r] = NEW(double, n);
            for (int i = 0; i < n; i++) {
                of[k].start[r][i] = at + 1e-3 * (k + 1) * c->timeline->start[r][i];
                of[k].end[r][i] = at + 1e-3 * (k + 1) * c->timeline->end[r][i];
            }
        }
        of[k].makespan = at + 1e-3 * (k + 1) * c->timeline->makespan;
    }
    c->steps = (struct steps){3, number, of};
    c->report->unit = "s";
}

Test(emit_trace, several_steps) {
    static const char *const names[] = {"1f1b", "fsdp", "dualpipev", "zbv"};
    for (int i = 0; i < 4; i++) {
        struct compile c = compiled(format(S "%s.lua", names[i]), NULL, NULL, i == 3 ? PER_RANK : PER_EDGE);
        measure(&c);
        expect_good(c, 1e9);
    }
}

/* Holistic Trace Analysis finds the rank, the steps, the kernels, and which of them are communication. */
static void expect_hta(const struct compile *c, int r, double unit_ns) {
    struct text t = {0};
    emit_hta(&t, c->program, &c->steps, c->report->unit, r);
    struct seen z = read_hta(t.s, t.n, r);
    const struct rank *k = &c->program->rank[r];
    cr_assert_eq(z.nslices, (size_t)(k->nins * c->steps.n));
    for (size_t j = 0; j < z.nslices; j++) {
        const struct seen_slice *s = &z.slice[j];
        size_t step = j / (size_t)k->nins, i = j % (size_t)k->nins;
        const struct instr *in = &k->ins[i];
        const char *name = format("%s%s", is_message(in->op) ? "ncclKernel_" : "", op_name[in->op]);
        cr_assert_str_eq(s->name, name);
        cr_assert_eq(s->track, in->lane + 1, "%s runs on stream %d", name, s->track);
        cr_assert_eq(s->step, c->steps.number ? c->steps.number[step] : 1);
        cr_assert(s->stage == in->stage && s->mb == in->batch && s->peer == in->peer);
        cr_assert_float_eq((double)s->t, c->steps.of[step].start[r][i] * unit_ns, 500.5);
        cr_assert_float_eq((double)s->end, c->steps.of[step].end[r][i] * unit_ns, 500.5);
    }
}

Test(emit_trace, hta) {
    static const char *const names[] = {"1f1b", "fsdp", "dualpipev", "replicated"};
    for (int i = 0; i < 4; i++) {
        struct compile c = compiled(format(S "%s.lua", names[i]), NULL, NULL, i == 3 ? PER_RANK : PER_EDGE);
        for (int r = 0; r < c.program->workers; r++)
            expect_hta(&c, r, 1e6);
        measure(&c);
        for (int r = 0; r < c.program->workers; r++)
            expect_hta(&c, r, 1e9);
    }
}

/* One rank, four stages, a byte per tensor: 8 bytes of weights and their gradients stay. The forward of stage s adds
 * its stash and its output while its input is still there; a backward frees its stash and the gradient it read. */
Test(emit_trace, memory_by_hand) {
    struct compile c = {.args = {.schedule = S "serial.lua"}};
    compile_all(&c, "");
    struct seen z = chrome(&c);
    struct text t = {0};
    for (size_t i = 0; i < z.nlevels && i < 12; i++)
        put(&t, "%lld:%lld ", (long long)(z.level[i].t / 1000000), (long long)z.level[i].bytes);
    cr_assert_str_eq(t.s, "0:10 1:12 2:13 8:12 10:10 13:12 14:13 20:12 22:10 25:12 26:13 32:12 ");
}

/* Three jobs that take no time and one that does, all at once on one lane: each is visible. */
Test(emit_trace, no_time_at_all) {
    double start[] = {0, 0, 0, 0}, end[] = {0, 0, 0, 1}, *starts[] = {start}, *ends[] = {end};
    struct instr ins[4] = {0};
    struct lane compute = {.kind = LANE_COMPUTE};
    for (int i = 0; i < 4; i++)
        ins[i] = (struct instr){
            .op = i < 3 ? OP_ZERO : OP_F, .stage = i, .batch = i < 3 ? -1 : 0, .peer = -1, .msg = -1, .inst = -1};
    struct rank rank = {.ins = ins, .nins = 4, .lane = &compute, .nlanes = 1};
    struct compile c = {.program =
                            &(struct program){.name = "x", .workers = 1, .stages = 4, .batches = 1, .rank = &rank},
                        .timeline = &(struct timeline){starts, ends, .makespan = 1, .launch = LAUNCH_LANE},
                        .report = &(struct report){.unit = "F"}};
    c.steps = (struct steps){1, NULL, c.timeline};
    struct seen z = chrome(&c), proto = pftrace(&c);
    expect_nested(&z);
    expect_same(&z, &proto);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(z.slice[i].t, i);
}

/* PipeDream: a rank's period is marked on its process. An update has its number, a job the version it reads. */
Test(emit_trace, periods_and_updates) {
    struct compile c = compiled(S "pipedream.lua", NULL, NULL, PER_EDGE);
    struct seen z = chrome(&c), proto = pftrace(&c);
    expect_same(&z, &proto);
    cr_assert_eq(z.ninstants, 2 * 4);
    for (int i = 0; i < 8; i++) {
        int r = i / 2;
        cr_assert_str_eq(z.instant[i].rank, format("rank %d", r));
        cr_assert_str_eq(z.instant[i].name, i % 2 ? "period ends" : "period begins");
        cr_assert_eq(z.instant[i].t, z.instant[i - i % 2].t + i % 2 * 12 * 1000000);
    }
    int updates = 0;
    for (const struct seen_slice *s = z.slice; s < z.slice + z.nslices; s++) {
        bool update = strchr(s->name, 'U') != NULL, job = strspn(s->name, "0123456789FB") == strlen(s->name);
        cr_assert_eq(s->update >= 0, update, "%s", s->name);
        cr_assert_eq(s->version >= 0, job, "%s", s->name);
        cr_assert(!update || s->mb < 0);
        updates += update;
    }
    cr_assert_eq(updates, 4 * c.program->batches);
}
