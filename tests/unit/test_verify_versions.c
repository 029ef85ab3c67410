/* Checks rules that a program's text omits: which versions of weights the schedule lets its jobs read. */
#include "cli/pipeline.h"
#include "compiler.h"
#include "judge.h"
#include <criterion/criterion.h>
#include <string.h>

static struct compile compile_steady(const char *schedule, const char **set, int nset) {
    struct compile c = {.args = {.schedule = schedule, .set = set, .nset = nset}};
    compile_until(&c, TRIED_PERIODS | WAITS);
    return c;
}

static const char *wrong(const struct compile *c) {
    struct refutation *no = verify(c->costs, c->graph, c->program, CLAIM_ALL);
    return no ? no->why : NULL;
}

/* Gives each job of a stage and direction another rule. Returns the verdict of verify; restores the old rule. */
static const char *with_rule(const struct compile *c, int s, int d, int rule) {
    struct spec *sp = (struct spec *)c->spec;
    int32_t *reads = sp->updates.reads, *other = NEW(int32_t, c->spec->njobs);
    for (int32_t j = 0; j < c->spec->njobs; j++)
        other[j] = c->spec->job[j].s == s && c->spec->job[j].d == d ? rule : reads[j];
    sp->updates.reads = other;
    const char *why = wrong(c);
    struct promise want = promise_of(c->costs, c->graph);
    struct judgement j = judge(&want, c->program);
    cr_expect_eq(j.is == RIGHT, !why, "stage %d, %s, rule %d: %s; the judge: %s", s, op_name[d], rule,
                 why ? why : "proved", j.why ? j.why : "right");
    sp->updates.reads = reads;
    return why;
}

/* With weight stashing, stage s of P has a staleness of P - 1 - s once the pipeline is full. */
Test(verify_versions, follow_the_rules) {
    static const char *set[] = {"replicas=1,1,1", "batches=300"};
    struct compile c = compile_steady("schedules/pipedream.lua", set, 2);
    cr_assert(c.program->period && !wrong(&c), "%s", wrong(&c));
    for (int s = 0; s < 3; s++)
        for (int rule = READ_INPUT; rule <= 3; rule++) {
            bool right = rule == READ_FORWARD || rule == 2 - s || (s == 2 && rule == READ_LATEST) ||
                         (s == 0 && rule == READ_INPUT);
            const char *why = with_rule(&c, s, OP_B, rule);
            cr_expect(right ? !why : why && (strstr(why, "but must read") || strstr(why, "are missing, which")),
                      "stage %d, rule %d: %s", s, rule, why);
        }
}

/* A rule of k updates back reads version 0 at the step's beginning, where there are no others, but not in a period. */
Test(verify_versions, are_not_cut_off_in_a_period) {
    static const char *set[] = {"workers=2", "update=2", "batches=200"};
    struct compile c = compile_steady("schedules/pipedream_2bw.lua", set, 3);
    cr_assert(c.program->period && !wrong(&c), "%s", wrong(&c));
    for (int s = 0; s < 2; s++)
        for (int rule = 0; rule < 4; rule++) {
            const char *why = with_rule(&c, s, OP_F, rule);
            cr_expect((rule == 1) == !why, "stage %d, %d updates back: %s", s, rule, why);
        }
}

/* Forward 1 reads the version before the newest, and so does its backward, inside the period. Forward 2, inside the
 * period, reads the newest, and so does its backward after the period. But in a second repetition, the instruction that
 * was backward 1 is backward 2, and reads the version before the newest. */
static const char uneven[] = "pianola 1\n"
                             "program uneven workers 1 stages 1 batches 3\n"
                             "updates 1\n"
                             "period 1 times 1\n"
                             "rank 0 lane compute\n"
                             "F 0 0 v0 w=weight(0) stash=stash(0,0)\n"
                             "B 0 0 v0 w=weight(0) stash=stash(0,0) dw=wgrad(0) free(stash(0,0))\n"
                             "COPY 0#0 src=weight(0) w=weight(0)#0\n"
                             "U 0 0 dw=wgrad(0) w=weight(0) free(wgrad(0))\n"
                             "F 0 1 v0 w=weight(0)#0 stash=stash(0,1)\n"
                             "B 0 1 v0 w=weight(0)#0 stash=stash(0,1) dw=wgrad(0)#1 free(stash(0,1) weight(0)#0)\n"
                             "COPY 0#1 src=weight(0) w=weight(0)#1\n"
                             "U 0 1 dw=wgrad(0)#1 w=weight(0) free(wgrad(0)#1)\n"
                             "F 0 2 v%d w=weight(0)%s stash=stash(0,2)\n"
                             "B 0 2 v%d w=weight(0)%s stash=stash(0,2) dw=wgrad(0)#2 free(stash(0,2) weight(0)#1)\n"
                             "U 0 2 dw=wgrad(0)#2 w=weight(0) free(wgrad(0)#2)\n"
                             "rank 0 issue\n0*5 | 0*4 | 0*2\n"
                             "rank 0 memory 5\n"
                             "weight(0) 0 1\nweight(0)#0 1 1\nweight(0)#1 1 1\n"
                             "stash(0,0) 2 1\nstash(0,1) 2 1\nstash(0,2) 2 1\n"
                             "wgrad(0) 3 1\nwgrad(0)#1 3 1\nwgrad(0)#2 3 1\n";

Test(verify_versions, of_forwards_repeat) {
    static const char *set[] = {"replicas=1", "batches=3"};
    struct script_args args = {.schedule = "schedules/pipedream.lua", .set = set, .nset = 2};
    struct compile c = {.spec = script_load(&args)};
    c.costs = costs_make(c.spec); /* finds the homes */
    c.graph = graph_build(c.costs);
    for (int32_t j = 0; j < c.spec->njobs; j++) /* a forward may read anything, and its backward the same */
        if (c.spec->job[j].d == OP_F)
            c.spec->updates.reads[j] = c.spec->job[j].b == 0 ? 0 : 1;
    for (int newest = 0; newest < 2; newest++) {
        const char *from = newest ? "" : "#1";
        c.program = read_text("uneven", format(uneven, 1 + newest, from, 1 + newest, from));
        c.spec->updates.reads[job_at(c.spec, 0, 2, OP_F)] = newest ? 0 : 1;
        c.spec->updates.reads[job_at(c.spec, 0, 1, OP_F)] = 1;
        cr_expect(!verify_text(c.program), "%s", verify_text(c.program)->why);
        const char *why = wrong(&c);
        cr_expect(newest ? why && strstr(why, "0F2 reads version 2 where 0F1, 1 microbatches before it, reads 0")
                         : !why,
                  "%s", why);
        struct promise want = promise_of(c.costs, c.graph);
        struct judgement j = judge(&want, c.program);
        cr_expect_eq(j.is, newest ? WRONG : RIGHT, "%s", j.why);
    }
    c.program = read_text("uneven", format(uneven, 1, "#1", 1, "#1"));
    c.spec->updates.reads[job_at(c.spec, 0, 2, OP_F)] = 1;
    cr_expect(!wrong(&c), "%s", wrong(&c));
    c.spec->updates.reads[job_at(c.spec, 0, 1, OP_B)] = 2; /* no two updates precede it here, but two do later */
    cr_expect(wrong(&c) && strstr(wrong(&c), "because 2 updates are missing"), "%s", wrong(&c));
}

Test(verify_versions, and_updates_are_those_of_the_script) {
    static const char *set[] = {"replicas=1,1", "batches=100"};
    struct compile c = compile_steady("schedules/pipedream.lua", set, 2);
    cr_assert(c.program->period && !wrong(&c), "%s", wrong(&c));
    c.program->repeats++;
    cr_expect(wrong(&c) && strstr(wrong(&c), "the script's step has 100 microbatches"), "%s", wrong(&c));
    c.program->repeats--;
    struct spec *sp = (struct spec *)c.spec;
    int *update = sp->updates.every;
    sp->updates.every = (int[]){2, 1};
    cr_expect(wrong(&c) && strstr(wrong(&c), "says 2 microbatches per update of stage 0"), "%s", wrong(&c));
    sp->updates.every = NULL;
    cr_expect(wrong(&c) && strstr(wrong(&c), "says that updates are none"), "%s", wrong(&c));
    sp->updates.every = update;
    cr_expect(!wrong(&c), "%s", wrong(&c));
}
