/* Turns scripts into struct spec. The messages for wrong scripts are in tests/language/bad/. */
#include "compiler.h"
#include "script/script.h"
#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* ---- loading ---- */

static struct spec *load(const char *schedule, const char *model, const char *cluster, const char *set) {
    const char *sets[8];
    struct script_args a = {.schedule = schedule, .model = model, .cluster = cluster, .set = sets};
    char *rest = copy_string(set);
    for (char *one = strtok(rest, " "); one; one = strtok(NULL, " "))
        sets[a.nset++] = one;
    return script_load(&a);
}

/* Writes a file with this text; the next call overwrites the buffer with its name. */
static const char *file_of(const char *text) {
    static char name[] = "/tmp/pianola_script_XXXXXX";
    memcpy(name + strlen(name) - 6, "XXXXXX", 6);
    int fd = mkstemp(name);
    cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    return name;
}

static struct spec *load_text(const char *text) {
    const char *name = file_of(text);
    struct spec *sp = load(name, NULL, NULL, "");
    unlink(name);
    return sp;
}

/* Loads a schedule of 2 ranks, 2 stages and 2 microbatches with these further fields. */
static struct spec *load_fields(const char *fields) {
    return load_text(format("return schedule { workers = 2, stages = 2, batches = 2,\n%s }", fields));
}

/* Returns the message of a script that fails. */
static const char *failure(const char *text) {
    jmp_buf here;
    const char *name = file_of(text);
    diag_trap = &here;
    if (!setjmp(here)) {
        load(name, NULL, NULL, "");
        cr_assert_fail("the script was accepted");
    }
    diag_trap = NULL;
    unlink(name);
    return diag_text;
}

static const struct job *job(const struct spec *sp, int s, int b, int d) {
    cr_assert_geq(job_at(sp, s, b, d), 0, "no job %s", job_name(NULL, s, b, d));
    return &sp->job[job_at(sp, s, b, d)];
}

#define W_OWN "w = function(s, b, d) return s, s end, "

/* ---- the shipped schedules ---- */

enum order { OLDEST_BATCH, FORWARD_FIRST, ONE_FORWARD_ONE_BACKWARD };

/* Returns priorities: rank s of 1F1B runs workers - s forwards, then a backward and a forward in turn. */
static double priority(enum order order, int workers, int s, int b, int d) {
    int warmup = workers - s;
    if (order == OLDEST_BATCH)
        return b;
    if (order == FORWARD_FIRST)
        return d != OP_F;
    return d != OP_F ? warmup + 2 * b : b < warmup ? b : 2 * b - warmup + 1;
}

static void check_shipped(const char *name, const char *set, int workers, enum order order, int home(int s, int b),
                          int compute(int s, int b)) {
    struct spec *sp = load(format("schedules/%s.lua", name), NULL, NULL, set);
    cr_assert_str_eq(sp->name, name);
    cr_assert_eq(sp->workers, workers, "%s", name);
    cr_assert_eq(sp->njobs, 2 * sp->stages * sp->batches, "%s", name);
    cr_assert_eq(sp->strict, order != OLDEST_BATCH, "%s", name);
    cr_assert(!sp->pred && !sp->model && !sp->machine.has_cluster);
    const struct job *j = sp->job;
    for (int s = 0; s < sp->stages; s++)
        for (int b = 0; b < sp->batches; b++)
            for (int d = OP_F; d <= OP_B; d += OP_B - OP_F, j++) {
                cr_assert(j->s == s && j->b == b && j->d == d, "%s: canonical order", name);
                cr_assert_eq(job_at(sp, s, b, d), j - sp->job);
                cr_assert_eq(j->home, home(s, b), "%s: home of %s", name, job_name(NULL, s, b, d));
                cr_assert_eq(j->rank, compute(s, b), "%s: rank of %s", name, job_name(NULL, s, b, d));
                cr_assert_eq(j->prio, priority(order, workers, s, b, d), "%s: priority of %s", name,
                             job_name(NULL, s, b, d));
                cr_assert(isnan(j->cost));
            }
    for (int k = 0; k < workers; k++) {
        cr_assert_eq(sp->limits.cap[k], INT_MAX);
        cr_assert_eq(sp->choices.slots[k], 2);
    }
}

static int zero(int s, int b) { return 0 * s * b; }
static int stage(int s, int b) { return s + 0 * b; }
static int batch_of_8(int s, int b) { return b % 8 + 0 * s; }
static int stage_of_8(int s, int b) { return s % 8 + 0 * b; }
static int loop(int s, int b) { return 2 * b % 4 + s % 2; }
static int loop_home(int s, int b) { return loop(s, s) + 0 * b; }

Test(script, shipped_schedules) {
    check_shipped("serial", "", 1, OLDEST_BATCH, zero, zero);
    check_shipped("ddp", "batches=16", 8, OLDEST_BATCH, batch_of_8, batch_of_8);
    check_shipped("fsdp_whole", "stages=10", 8, OLDEST_BATCH, stage_of_8, batch_of_8);
    check_shipped("gpipe", "workers=5", 5, FORWARD_FIRST, stage, stage);
    check_shipped("1f1b", "workers=5 stages=5", 5, ONE_FORWARD_ONE_BACKWARD, stage, stage);
    check_shipped("lpp", "workers=4 group=2", 4, OLDEST_BATCH, loop, loop);
    check_shipped("fslpp", "workers=4 group=2", 4, OLDEST_BATCH, loop_home, loop);
}

/* ---- parameters ---- */

Test(script, params) {
    const char *name =
        file_of("local p = params { workers = 4, rate = 0.5, eager = false, name = \"x\", costs = {1, 1} }\n"
                "local q = params { stages = p.workers }\n"
                "assert(math.type(p.workers) == 'integer' and math.type(p.rate) == 'float')\n"
                "assert(p.eager == true and p.name == '7' and #p.costs == 3 and p.costs[3] == 5)\n"
                "return schedule { workers = p.workers, stages = q.stages, batches = 1, " W_OWN "}");
    struct spec *sp = load(name, NULL, NULL, "workers=2 workers=3 rate=2 eager=true name=7 costs=2,1,5");
    unlink(name);
    cr_assert_str_eq(sp->declared.params, "costs=2,1,5 eager=true name=7 rate=2 stages=3 workers=3");
    cr_assert_eq(sp->stages, 3, "a default may depend on another parameter");
    cr_assert_str_eq(load_fields(W_OWN)->declared.params, "");
}

Test(script, settings_reach_model_and_cluster) {
    struct spec *sp = load("schedules/gpipe.lua", "schedules/models/integers.lua", "schedules/clusters/latency.lua",
                           "workers=2 width=8 latency=3 flops=1e12");
    cr_assert_eq(sp->model->layer[0].out, 8);
    cr_assert_eq(sp->machine.link[1].latency, 3);
    cr_assert_str_eq(sp->declared.params, "batches=8 stages=2 workers=2", "the schedule's");
}

/* ---- jobs ---- */

/* n compares as in Lua, also beyond 53 bits and next to floats. */
Test(script, priorities_compare_exactly) {
    struct spec *sp = load_fields(
        "w = function(s, b, d) return 0, 0 end,\n"
        "n = function(s, b, d) return ({ F = { math.maxinteger, 2^63 }, B = { math.maxinteger - 1, 1 << 53 },\n"
        "  R = { (1 << 53) + 1, math.mininteger } })[s == 1 and d == 'F' and 'R' or d][b + 1] end,\n");
    const struct job *most = job(sp, 0, 0, OP_F), *above = job(sp, 0, 1, OP_F), *less = job(sp, 0, 0, OP_B);
    const struct job *odd = job(sp, 1, 0, OP_F), *even = job(sp, 0, 1, OP_B), *least = job(sp, 1, 1, OP_F);
    const struct job *ascending[] = {least, even, odd, less, most, above};
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 6; k++)
            cr_assert_eq(compare_n(ascending[i], ascending[k]), (i > k) - (i < k), "%d, %d", i, k);
}

Test(script, split_backward_and_recompute) {
    struct spec *sp =
        load_fields("w = function(s, b, d) return s, (d == 'B' or d == 'I') and 1 or 0 end,\n"
                    "n = function(s, b, d) return ({ F = 1, R = 2, I = 3, B = 4, W = 5.5 })[d] end,\n"
                    "split_backward = function(s, b) return s == 1 end, recompute = function(s, b) return "
                    "b == 1 end");
    static const struct {
        int s, b, d;
    } want[] = {{0, 0, OP_F}, {0, 0, OP_B}, {0, 1, OP_F}, {0, 1, OP_R}, {0, 1, OP_B}, {1, 0, OP_F},
                {1, 0, OP_I}, {1, 0, OP_W}, {1, 1, OP_F}, {1, 1, OP_R}, {1, 1, OP_I}, {1, 1, OP_W}};
    static const double prio[] = {[OP_F] = 1, [OP_R] = 2, [OP_I] = 3, [OP_B] = 4, [OP_W] = 5.5};
    cr_assert_eq(sp->njobs, 12);
    for (int i = 0; i < 12; i++) {
        const struct job *j = &sp->job[i];
        cr_assert(j->s == want[i].s && j->b == want[i].b && j->d == want[i].d, "job %d", i);
        cr_assert_eq(j->prio, prio[j->d]);
        cr_assert_eq(j->home, j->s);
        cr_assert_eq(j->rank, j->d == OP_R || j->d == OP_I || j->d == OP_B, "a recompute runs where its backward does");
    }
    cr_assert_eq(job_at(sp, 0, 0, OP_I), -1);
    cr_assert_eq(load_fields(W_OWN "split_backward = true, recompute = true")->njobs, 16);
}

Test(script, every_function_is_asked_once_per_job) {
    struct spec *sp =
        load_fields("w = (function() local k = 0; return function() k = k + 1; return 0, (k - 1) // 4 end "
                    "end)(), n = (function() local k = 0; return function() k = k + 1; return k end end)()");
    for (int i = 0; i < 8; i++) {
        cr_assert_eq(sp->job[i].rank, i / 4);
        cr_assert_eq(sp->job[i].prio, i + 1);
    }
}

Test(script, sequence) {
    struct spec *sp = load_fields("sequence = { { '0F1', '0F0', '1F0', '0B0', '0R1', '0I1', '0W1' }, "
                                  "{ '1F1', '1B1', '1B0' } }");
    cr_assert(sp->strict);
    cr_assert_eq(sp->njobs, 10);
    cr_assert(job(sp, 0, 1, OP_F)->prio == 0 && job(sp, 0, 1, OP_W)->prio == 6 && job(sp, 1, 0, OP_B)->prio == 2);
    cr_assert(job(sp, 1, 0, OP_F)->rank == 0 && job(sp, 1, 0, OP_B)->rank == 1);
    cr_assert(job(sp, 1, 0, OP_F)->home == 0 && job(sp, 1, 0, OP_B)->home == 1, "home: who runs it");
    sp = load_fields("sequence = { { '0F1', '0F0', '0B0', '0B1' }, { '1F1', '1B1', '1F0', '1B0' } },\n"
                     "w = function(s, b, d) return 1 - s end");
    for (int i = 0; i < sp->njobs; i++)
        cr_assert(sp->job[i].home == 1 - sp->job[i].s && sp->job[i].rank == sp->job[i].s, "home: what w says");
}

Test(script, the_closed_form_of_a_bubble) {
    cr_assert_null(load_fields("w = function() return 0, 0 end")->declared.bubble);
    cr_assert_eq(*load_fields("w = function() return 0, 0 end, bubble = 3 / 8")->declared.bubble, 0.375);
    cr_assert_eq(*load_fields("w = function() return 0, 0 end, bubble = 0")->declared.bubble, 0);
}

Test(script, jobs_that_overlap) {
    struct spec *sp = load_fields("sequence = { { '0F0', '0F1+0B0', '0B1' }, { '1F0', '1B0+1F1', '1B1' } }");
    cr_assert(sp->npairs == 2 && sp->overlap == 0 && !job(sp, 0, 0, OP_F)->pair);
    cr_assert(job(sp, 0, 1, OP_F)->pair == 1 && job(sp, 0, 0, OP_B)->pair == 1);
    cr_assert_eq(partner_of(sp, job_at(sp, 0, 1, OP_F)), job_at(sp, 0, 0, OP_B));
    cr_assert_eq(partner_of(sp, job_at(sp, 0, 0, OP_B)), -1, "it is the second");
    cr_assert_eq(partner_of(sp, job_at(sp, 1, 0, OP_B)), job_at(sp, 1, 1, OP_F));
    cr_assert(job(sp, 0, 1, OP_F)->prio == 1 && job(sp, 0, 0, OP_B)->prio == 2 && job(sp, 0, 1, OP_B)->prio == 3);
    sp = load_fields("sequence = { { '0F0', '0F1+0B0', '0B1' }, { '1F0', '1B0', '1F1', '1B1' } }, overlap = 0.25");
    const struct costs *costs = costs_make(sp);
    cr_assert_eq(job_time(costs, job_at(sp, 0, 1, OP_F)), 1 + 2 - 0.25);
    cr_assert_eq(job_time(costs, job_at(sp, 0, 0, OP_B)), 1 + 2 - 0.25);
    cr_assert_eq(job_time(costs, job_at(sp, 0, 1, OP_B)), 2);
}

/* A W belongs to the oldest I; each chunk counts its own microbatches, separately for F and backward. */
Test(script, unroll) {
    struct spec *sp = load_fields("sequence = { unroll({ { 2, 'F0' }, { 1, 'I0 F1+B0' }, { 1, 'W I1 W' } },\n"
                                  "function(x, k) return x, k end), { '1F1', '1B1' } }");
    static const char *want[] = {"0F0", "0F1", "0I0", "1F0", "0B1", "0W0", "1I0", "1W0"};
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < sp->njobs; j++)
            if (sp->job[j].rank == 0 && sp->job[j].prio == i)
                cr_assert_str_eq(job_name(NULL, sp->job[j].s, sp->job[j].b, sp->job[j].d), want[i]);
    cr_assert_eq(sp->njobs, 10);
    cr_assert_eq(partner_of(sp, job_at(sp, 1, 0, OP_F)), job_at(sp, 0, 1, OP_B));
}

Test(script, fill) {
    struct spec *sp = load_fields(W_OWN "split_backward = true, order = 'strict',\n"
                                        "fill = function(s, b, d) return d == 'W' and b == 1 end");
    for (int i = 0; i < sp->njobs; i++)
        cr_assert_eq(sp->job[i].fill, sp->job[i].d == OP_W && sp->job[i].b == 1);
}

/* --recompute acts as if the script had asked for it, in its order or in a sequence. */
Test(script, recompute_asked_for) {
    static const char *const ways[] = {
        W_OWN "order = 'strict', n = function(s, b, d) return d == 'R' and 9 or b end",
        "sequence = { { '0F0', '0F1', '0B0', '0B1' }, { '1F0', '1B0', '1F1', '1B1' } }",
        W_OWN "recompute = function(s, b) return s == 0 end",
    };
    for (int i = 0; i < 3; i++) {
        const char *text = format("return schedule { workers = 2, stages = 2, batches = 2,\n%s }", ways[i]);
        struct script_args a = {.schedule = file_of(text), .recompute = true};
        struct spec *sp = script_load(&a);
        unlink(a.schedule);
        cr_assert_eq(sp->njobs, 12);
        for (int k = 0; k < sp->njobs; k++)
            if (sp->job[k].d == OP_R) {
                cr_assert_eq(sp->job[k].rank, sp->job[k + 1].rank);
                cr_assert_eq(sp->job[k].prio, sp->job[k + 1].prio, "just before its backward");
            }
    }
}

Test(script, order_cost_cap_and_slots) {
    struct spec *sp =
        load_fields(W_OWN "order = 'strict', cost = function(s, b, d) return d == 'F' and 0.25 or 2 + s end,\n"
                          "cap = function(r) return r == 0 and math.huge or 3 end, weight_slots = 0");
    cr_assert(sp->strict);
    cr_assert(job(sp, 1, 0, OP_F)->cost == 0.25 && job(sp, 1, 0, OP_B)->cost == 3);
    cr_assert(sp->limits.cap[0] == INT_MAX && sp->limits.cap[1] == 3);
    cr_assert(sp->choices.slots[0] == 0 && sp->choices.slots[1] == 0);
    sp = load_fields(W_OWN "cap = 5, weight_slots = function(r) return 4 + r end");
    cr_assert(sp->limits.cap[1] == 5 && sp->choices.slots[0] == 4 && sp->choices.slots[1] == 5);
}

Test(script, pred) {
    struct spec *sp = load_fields(W_OWN "pred = function(s, b, d)\n"
                                        "  if d == 'F' then return {} end\n"
                                        "  return { { s, b, 'F' }, { 1 - s, b, 'F' }, { s, b, 'F' } }\n end");
    for (int i = 0; i < sp->njobs; i++) {
        const struct job *j = &sp->job[i];
        const int32_t *p = sp->pred + sp->pred_at[i];
        cr_assert_eq(sp->pred_at[i + 1] - sp->pred_at[i], j->d == OP_F ? 0 : 2, "named twice is needed once");
        if (j->d == OP_B)
            cr_assert(p[0] == job_at(sp, j->s, j->b, OP_F) && p[1] == job_at(sp, 1 - j->s, j->b, OP_F));
    }
    sp = load_fields(W_OWN "pred = function() return {} end");
    cr_assert(sp->pred && sp->pred_at[sp->njobs] == 0, "no dependencies at all are not the default ones");
}

Test(script, limits) {
    const char *text = "return schedule { workers = %d, stages = 1, batches = %d, w = function() return 0, %d end }";
    cr_assert_eq(load_text(format(text, 4096, 1, 4095))->job[1].rank, 4095);
    cr_assert(strstr(failure(format(text, 4097, 1, 0)), "'workers' must be between 1 and 4096, not 4097"));
    cr_assert(strstr(failure(format(text, 1, 6666667, 0)), "at most 20000000 jobs"));
    cr_assert(strstr(failure("return schedule { workers = 1, stages = 2147483647, batches = 2147483647 }"), "at most"));
}

/* ---- the sandbox ---- */

/* Returns results as placements, so that a difference shows in the spec. */
Test(script, same_every_time) {
    static const char text[] =
        "local place, at = {}, 0\n"
        "for k in pairs { d = 1, [3.5] = 1, a = 1, [true] = 1, c = 1, [2] = 1, b = 1, [-1] = 1, [false] = 1, aa = 1 } "
        "do\n"
        "  at = at + 1\n  place[at] = tostring(k)\nend\n"
        "local walk, k = {}, nil\n"
        "repeat k = next({ z = 1, y = 1, [1] = 1 }, k); walk[#walk + 1] = tostring(k) until k == nil\n"
        "local rows = {}\n"
        "for i = 1, 1000 do rows[i] = { key = i * 7919 % 10, at = i } end\n"
        "table.sort(rows, function(x, y) return x.key < y.key end)\n"
        "for i = 2, 1000 do\n  local x, y = rows[i - 1], rows[i]\n"
        "  assert(x.key < y.key or x.key == y.key and x.at < y.at, 'sorted, and stable')\nend\n"
        "local few = { 3, 1, 2 }\ntable.sort(few)\nassert(table.concat(few) == '123')\n"
        "assert(tostring({}) == 'table' and tostring(print) == 'function')\n"
        "assert(string.format('%-6s|%s%%|%d', {}, print, 3) == 'table |function%|3')\n"
        "return schedule { workers = 1000, stages = 1, batches = 1, w = function() return 0, math.random(0, 999) end,\n"
        "  n = function(s, b, d) error(table.concat(place, ' ') .. ' ' .. table.concat(walk, ' ') .. ' ' .. "
        "math.random(1, 1000000)) end }";
    const char *first = copy_string(strstr(failure(text), "error: "));
    cr_assert(strstr(first, "-1 2 3.5 a aa b c d false true 1 y z nil 83432, in n() for 0F0"), "%s", first);
    for (int i = 0; i < 3; i++)
        cr_assert_str_eq(strstr(failure(text), "error: "), first);
}

Test(script, orders_of_the_papers) {
    static const char *const names[] = {"forward_first", "backward_first", "oldest_batch_first", "oldest_stage_first"};
    for (int i = 0; i < 4; i++) {
        struct spec *sp = load_fields(format(W_OWN "split_backward = true, recompute = true, n = %s", names[i]));
        for (int k = 0; k < sp->njobs; k++) {
            const struct job *j = &sp->job[k];
            double want[] = {j->d != OP_F, j->d == OP_F, j->b, j->s};
            if (j->d == OP_R) /* after everything else, the last stage first */
                want[1] = 2, want[2] = j->b + 1.0 / (j->s + 2);
            cr_assert_eq(j->prio, want[i], "%s of %s", names[i], job_name(NULL, j->s, j->b, j->d));
        }
    }
}

static const char endless[] = "while true do pcall(function() while true do end end) end";

Test(script, a_failed_load_leaves_nothing_behind) {
    alarm(60); /* a script that does not end must not hang the suite */
    struct spec *before = load("schedules/1f1b.lua", NULL, NULL, "");
    cr_assert(strstr(failure(endless), "200 million instructions"));
    cr_assert(strstr(
        failure("local t = {}\nwhile true do\n  pcall(function() t[#t + 1] = { 1, 2, 3, 4, 5, 6, 7, 8 } end)\nend"),
        ":3: error: the script used more than 384 MiB of memory"));
    struct spec *after = load("schedules/1f1b.lua", NULL, NULL, "");
    cr_assert_eq(before->njobs, after->njobs);
    for (int i = 0; i < before->njobs; i++) {
        const struct job *x = &before->job[i], *y = &after->job[i];
        cr_assert(x->s == y->s && x->b == y->b && x->d == y->d && x->rank == y->rank && x->home == y->home &&
                  x->prio == y->prio);
    }
}

/* Also at a rare large size: the three that list their jobs need the most. */
Test(script, shipped_schedules_take_at_most_half_of_the_limits) {
    static const char *const names[] = {"dualpipe", "dualpipev", "zbv", "1f1b", "interleaved", "v_half"};
    bool small = SANITIZED; /* slow: a hundredth of the jobs and of the limits */
    for (int i = 0; i < 6; i++) {
        struct spec *sp = load(format("schedules/%s.lua", names[i]), NULL, NULL,
                               small ? "workers=16 batches=164" : "workers=256 batches=1024");
        cr_assert(sp->declared.effort > 0 && sp->declared.effort <= (small ? 0.005 : 0.5), "%s: %g", names[i],
                  sp->declared.effort);
        free_all();
    }
}

/* With 220 MB in use, 320 MB of garbage: reaches the limit, and collecting helps. */
Test(script, garbage_is_free) {
    load_text("local used, row = {}, {}\nfor i = 1, 14 do used[i] = table.move({}, 1, 1, 1e6) for k = 1, 1e6 do "
              "used[i][k] = k end end\n"
              "for i = 1, 1000 do row[i] = i end\nfor i = 1, 20000 do row = { table.unpack(row) } end\n"
              "return schedule { workers = 1, stages = 1, batches = 1, w = function() return 0, #used - 14 end }");
}

/* ---- our library functions, which act as Lua's do ---- */

static unsigned dice = 1;
static unsigned roll(unsigned n) { return (dice = dice * 1664525 + 1013904223) / 256 % n; }

static const char *random_text(const char *const *parts, unsigned nparts, unsigned longest) {
    struct text text = {0};
    put(&text, "%s", "");
    for (unsigned n = roll(longest + 1); n > 0; n--)
        put(&text, "%s", parts[roll(nparts)]);
    return text.s;
}

/* Returns the results of a call of string.NAME, or its error, as text. */
static const char *outcome(lua_State *L, const char *name, const char *s, const char *p, int extra) {
    struct text text = {0};
    int top = lua_gettop(L);
    lua_getglobal(L, "string");
    lua_getfield(L, -1, name);
    lua_pushstring(L, s);
    lua_pushstring(L, p);
    if (!strcmp(name, "gsub"))
        lua_pushstring(L, roll(2) ? "<%0>" : "%1%%%2");
    if (extra)
        lua_pushinteger(L, extra - 4);
    int bad = lua_pcall(L, lua_gettop(L) - top - 2, LUA_MULTRET, 0);
    put(&text, "%d", bad);
    for (int i = top + 2; i <= lua_gettop(L); i++) {
        put(&text, " %s", luaL_tolstring(L, i, NULL));
        lua_pop(L, 1);
    }
    lua_settop(L, top);
    return text.s;
}

/* Charging changes neither results nor errors: tries random patterns, many of them malformed. */
Test(script, charged_patterns_match_as_lua_s_do) {
    static const char *const letters[] = {"a", "b", "c", "(", ")", "[", "]", ".", " ", "7", "\x80", "%", "A"};
    static const char *const items[] = {
        "a", "b", "c", ".",  "%a",   "%A",   "%d",    "%s", "%w",   "%x",   "%z",    "%p",  "*",      "+",  "-",
        "?", "(", ")", "()", "[ab]", "[^a",  "[a-c]", "]",  "%b()", "%bab", "%f[a]", "%f",  "%f[%w]", "%1", "%2",
        "$", "^", "%", "[",  "[%]]", "[]a]", "%u",    "%l", "%g",   "%c",   "[%a-]", "(a*", ")",      "%)"};
    static const char *const functions[] = {"find", "match", "gsub"};
    lua_State *L = luaL_newstate(), *M = luaL_newstate();
    struct script S = {.meter.budget = INT64_MAX};
    luaL_openlibs(L);
    luaL_openlibs(M);
    *(struct script **)lua_getextraspace(M) = &S;
    lua_getglobal(M, "string");
    charge_patterns(M);
    lua_settop(M, 0);
    for (int i = 0; i < 200000; i++) {
        const char *s = random_text(letters, sizeof letters / sizeof *letters, 12);
        const char *p = random_text(items, sizeof items / sizeof *items, 6), *name = functions[roll(3)];
        int extra = (int)roll(9);
        unsigned seed = dice;
        const char *want = copy_string(outcome(L, name, s, p, extra));
        dice = seed;
        const char *got = outcome(M, name, s, p, extra);
        cr_assert_str_eq(got, want, "%s of '%s' and '%s', %d: '%s', Lua '%s'", name, s, p, extra, got, want);
        if (i % 1000 == 999)
            free_all();
    }
    lua_close(L);
    lua_close(M);
}

/* Lua shortens long file names in its messages. */
Test(script, lines_in_files_with_long_names) {
    char name[256], folder[] = "/tmp/pianola_a_folder_with_a_name_of_more_than_sixty_letters_XXXXXX";
    cr_assert(mkdtemp(folder));
    snprintf(name, sizeof name, "%s/schedule.lua", folder);
    FILE *f = fopen(name, "w");
    fputs("local t = {}\n\nt.x.y = 1\n", f);
    fclose(f);
    jmp_buf here;
    diag_trap = &here;
    if (!setjmp(here))
        load(name, NULL, NULL, "");
    diag_trap = NULL;
    unlink(name);
    rmdir(folder);
    cr_assert_str_eq(diag_text, format("%s:3: error: attempt to index a nil value (field 'x')\n    3 | t.x.y = 1\n"
                                       "      |   ^\n",
                                       name));
}

/* ---- models and clusters ---- */

Test(script, gpt) {
    struct model *m = load("schedules/serial.lua", "schedules/models/gpt.lua", NULL,
                           "layers=1 heads=2 context=8 rows=3 "
                           "batches=5")
                          ->model;
    static const struct {
        int kind, out, heads, unit, split;
    } want[] = {{LAYER_embedding, 64, 0, 0, SPLIT_ROWS},  {LAYER_fork, 0, 0, 1, SPLIT_NONE},
                {LAYER_layernorm, 0, 0, 1, SPLIT_NONE},   {LAYER_linear, 192, 0, 1, SPLIT_COLUMNS},
                {LAYER_attention, 0, 2, 1, SPLIT_NONE},   {LAYER_linear, 64, 0, 1, SPLIT_ROWS},
                {LAYER_join, 0, 0, 1, SPLIT_NONE},        {LAYER_fork, 0, 0, 2, SPLIT_NONE},
                {LAYER_layernorm, 0, 0, 2, SPLIT_NONE},   {LAYER_linear, 256, 0, 2, SPLIT_COLUMNS},
                {LAYER_gelu, 0, 0, 2, SPLIT_NONE},        {LAYER_linear, 64, 0, 2, SPLIT_ROWS},
                {LAYER_join, 0, 0, 2, SPLIT_NONE},        {LAYER_layernorm, 0, 0, 3, SPLIT_NONE},
                {LAYER_linear, 256, 0, 4, SPLIT_COLUMNS}, {LAYER_cross_entropy, 0, 0, 5, SPLIT_NONE}};
    cr_assert_eq(m->nlayers, (int)(sizeof want / sizeof *want));
    for (int i = 0; i < m->nlayers; i++)
        cr_assert(m->layer[i].kind == want[i].kind && m->layer[i].out == want[i].out &&
                      m->layer[i].config.attention.heads == want[i].heads && m->layer[i].item == want[i].unit &&
                      m->layer[i].split == want[i].split &&
                      m->layer[i].config.linear.bias == (want[i].kind == LAYER_linear) &&
                      m->layer[i].config.embedding.positions == (want[i].kind == LAYER_embedding),
                  "layer %d", i);
    cr_assert_eq(m->nitems, 6);
    cr_assert(!m->cut && m->ncut == 0);
    const struct rt_model *rt = &m->rt;
    cr_assert_eq(rt->precision, FP32);
    cr_assert(rt->input == INPUT_TOKENS && rt->vocab == 256 && rt->context == 8 && rt->rows == 24 && rt->batches == 5);
    cr_assert(rt->optimizer == OPT_ADAMW && rt->lr == 3e-3f && rt->beta1 == 0.9f && rt->beta2 == 0.95f &&
              rt->eps == 1e-8f && rt->decay == 0);
}

Test(script, llama) {
    struct model *m = load("schedules/serial.lua", "schedules/models/llama.lua", NULL,
                           "layers=1 width=48 heads=6 kv_heads=3 inner=0 context=8")
                          ->model;
    static const struct {
        int kind, out;
    } want[] = {{LAYER_embedding, 48}, {LAYER_fork, 0},     {LAYER_rmsnorm, 0},  {LAYER_linear, 96},
                {LAYER_attention, 0},  {LAYER_linear, 48},  {LAYER_join, 0},     {LAYER_fork, 0},
                {LAYER_rmsnorm, 0},    {LAYER_linear, 256}, {LAYER_swiglu, 0},   {LAYER_linear, 48},
                {LAYER_join, 0},       {LAYER_rmsnorm, 0},  {LAYER_linear, 256}, {LAYER_cross_entropy, 0}};
    cr_assert_eq(m->nlayers, (int)(sizeof want / sizeof *want));
    for (int i = 0; i < m->nlayers; i++) {
        const struct model_layer *l = &m->layer[i];
        bool attention = l->kind == LAYER_attention;
        cr_assert(l->kind == want[i].kind && l->out == want[i].out, "layer %d", i);
        cr_assert(!l->config.linear.bias && !l->config.embedding.positions, "%d", i);
        const struct attention_config *a = &l->config.attention;
        cr_assert(a->heads == (attention ? 6 : 0) && a->kv_heads == (attention ? 3 : 0), "layer %d", i);
        cr_assert_eq(a->rope, attention ? 10000 : 0);
    }
    m = load("schedules/serial.lua", "tests/papers/formulas/wide_heads.lua", NULL, "")->model;
    for (int i = 0; i < m->nlayers; i++)
        cr_assert(m->layer[i].config.attention.kv_heads == 0 && m->layer[i].config.attention.rope == 0,
                  "what a script leaves out");
}

Test(script, model_with_a_cut) {
    const char *name = file_of("return model { input = integers { features = 4, rows = 2 },\n"
                               "layers = { linear { width = 4 }, relu {}, linear { width = 4 }, mse {} },\n"
                               "optimizer = sgd { lr = 0.5 }, precision = \"bf16\", cut = { 2, 4 } }");
    struct model *m = load("schedules/gpipe.lua", name, NULL, "workers=3")->model;
    unlink(name);
    cr_assert(m->ncut == 2 && m->cut[0] == 1 && m->cut[1] == 3, "positions in Lua count from 1, units from 0");
    cr_assert(m->nitems == 4 && m->layer[1].item == 1 && m->layer[1].kind == LAYER_relu);
    cr_assert(m->rt.input == INPUT_INTEGERS && m->rt.features == 4 && m->rt.rows == 2);
    cr_assert(m->rt.optimizer == OPT_SGD && m->rt.lr == 0.5f && m->rt.precision == BF16);
}

Test(script, model_of_costs) {
    const char *name =
        file_of("return model { costs = { { name = \"conv\", forward = 2, activation = 7.5, weights = 8 },\n"
                "{ forward = 1, backward = 0.5, activation = 0, stash = 3 },\n"
                "{ forward = 0, backward = 4, weight_gradient = 1, activation = 4, weights = 12 } } }");
    struct spec *sp = load("schedules/gpipe.lua", name, NULL, "workers=2");
    unlink(name);
    const struct layer_cost *c = sp->model->cost;
    cr_assert(is_costs(sp) && sp->model->nitems == 3 && sp->model->nlayers == 0 && !sp->model->cut);
    cr_assert(!strcmp(c[0].name, "conv") && !strcmp(c[1].name, "layer 2") && !strcmp(c[2].name, "layer 3"));
    cr_assert(c[0].forward == 2 && c[0].backward == 4 && c[0].weight_gradient == 2, "twice, and half of it");
    cr_assert(c[0].activation == 8 && c[0].stash == 8 && c[0].weights == 8, "whole bytes");
    cr_assert(c[1].backward == 0.5 && c[1].weight_gradient == 0, "no weights, so no gradient of them");
    cr_assert(c[1].activation == 0 && c[1].stash == 3 && c[1].weights == 0);
    cr_assert(c[2].backward == 4 && c[2].weight_gradient == 1);
}

Test(script, cluster) {
    const char *name = file_of("return cluster { memory = 2^30, flops = 1e12,\n"
                               "link = function(src, dst) return src, dst == 0 and math.huge or dst * 8 end }");
    struct spec *sp = load("schedules/gpipe.lua", "schedules/models/integers.lua", name, "workers=3");
    unlink(name);
    cr_assert(sp->machine.has_cluster && sp->machine.memory == 1 << 30 && sp->machine.flops == 1e12);
    for (int i = 0; i < 9; i++) {
        int src = i / 3, dst = i % 3;
        cr_assert_eq(sp->machine.link[i].latency, src == dst ? 0 : src);
        cr_assert_eq(sp->machine.link[i].bandwidth, src == dst || dst == 0 ? INFINITY : dst * 8);
    }
    name = file_of("return cluster {}");
    sp = load("schedules/gpipe.lua", NULL, name, "");
    unlink(name);
    cr_assert(sp->machine.has_cluster && !sp->machine.link && isinf(sp->machine.memory) && sp->machine.flops == 0);
}
