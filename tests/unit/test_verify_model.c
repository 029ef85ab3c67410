/* Proofs that need a model or a cluster, which a program's text does not include. */
#include "compiler.h"
#include <criterion/criterion.h>
#include <string.h>

struct made {
    struct spec *sp;
    struct costs *costs;
    struct graph *g;
    struct program *p;
};

static struct made compile(const char *schedule, const char *model, const char **set, int nset) {
    struct script_args args = {.schedule = schedule, .model = model, .set = set, .nset = nset};
    struct spec *sp = script_load(&args);
    struct costs *costs = costs_make(sp);
    struct graph *g = graph_build(costs);
    struct program *p = lower_of(sp, costs, g, sched_of(sp, costs, g));
    mem_of(sp, p);
    lanes_sync(p);
    return (struct made){sp, costs, g, p};
}

static const char *wrong(struct made made) {
    struct refutation *no = verify(made.costs, made.g, made.p, CLAIM_ALL);
    return no ? no->why : NULL;
}

static struct made data_parallel(void) {
    static const char *set[] = {"workers=2", "batches=2", "stages=2", "bucket=40000"};
    struct made made = compile("schedules/ddp.lua", "schedules/models/gpt.lua", set, 4);
    cr_assert(made.costs->stage[0].parts > 2, "its backwards run in %d parts", made.costs->stage[0].parts);
    cr_assert(!wrong(made), "%s", wrong(made));
    return made;
}

/* A program is refuted if a part runs other layers than its ranges say, for any boundary moved past a layer with
 * parameters, or if it has no ranges. */
Test(verify_model, parts_contribute_what_their_layers_have) {
    struct made made = data_parallel();
    struct stage *st = &made.costs->stage[0];
    int *cut = NEW(int, st->parts + 1);
    const int *right = st->cut;
    st->cut = cut;
    for (int part = 1; part < st->parts; part++) {
        memcpy(cut, right, sizeof *cut * (size_t)(st->parts + 1));
        while (cut[part] > cut[part + 1])
            cut[part]--; /* moves all layers of the next part to this one */
        const char *why = wrong(made);
        cr_expect(why && strstr(why, "but `parts` says otherwise"), "boundary %d: %s", part, why);
    }
    st->cut = right;
    st->parts--;
    cr_expect(wrong(made) && strstr(wrong(made), "`parts` gives "), "%s", wrong(made));
    st->parts++;
    made.p->contributed = NULL;
    cr_expect(wrong(made) && strstr(wrong(made), "`parts` says what 0 parts contribute"), "%s", wrong(made));
}

/* Names a piece in the part before its contributor, and reduces it before that has run. */
Test(verify_model, parts_name_what_they_contribute) {
    struct made made = data_parallel();
    struct ranges *ranges = &made.p->contributed[OP_B];
    struct byte_range *range = NEW(struct byte_range, ranges->n);
    const struct byte_range *right = ranges->at;
    int64_t piece = made.costs->stage[0].bytes[K_wgrad] / made.costs->stage[0].pieces;
    ranges->at = range;
    for (int part = 1; part < ranges->n; part++) {
        memcpy(range, right, sizeof *range * (size_t)ranges->n);
        range[part - 1].from = range[part].to += right[part].to % piece ? piece - right[part].to % piece : piece;
        cr_expect(wrong(made), "the end of part %d in another piece", part);
    }
}

Test(verify_model, host_memory_has_a_limit) {
    static const char *set[] = {"workers=2", "batches=2"};
    struct made made = compile("schedules/1f1b_offload.lua", NULL, set, 2);
    int64_t most = made.p->rank[0].host;
    cr_assert(most > 0 && !wrong(made), "%s", wrong(made));
    made.sp->machine.host_memory = (double)most;
    cr_expect(!wrong(made), "%s", wrong(made));
    made.sp->machine.host_memory = (double)most - 1;
    cr_expect(wrong(made) && strstr(wrong(made), "the cluster's host_memory is"), "%s", wrong(made));
}
