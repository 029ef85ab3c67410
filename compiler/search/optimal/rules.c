/* Rules that may describe an order: the prelude's and the papers', with and without caps. */
#include "closed.h"
#include "ir/program.h"
#include <limits.h>

bool has_direction(const struct spec *sp, int d) {
    for (int s = 0; s < sp->stages; s++)
        if (job_at(sp, s, 0, d) >= 0)
            return true;
    return false;
}

bool can_scale(const struct costs *costs) {
    const struct spec *sp = costs->spec;
    if (sp->names.slices || sp->pred)
        return false;
    for (int s = 0; s < sp->stages; s++)
        for (int b = 0; b < sp->batches; b++)
            for (int d = 0; d < NDIRS; d++) {
                int32_t first = job_at(sp, s, 0, d), j = job_at(sp, s, b, d), f = job_at(sp, s, 0, OP_F);
                if ((first < 0) != (j < 0))
                    return false;
                if (j >= 0 && (sp->job[j].rank != sp->job[f].rank || sp->job[j].home != sp->job[f].home ||
                               costs->computes[j] != costs->computes[first]))
                    return false;
            }
    return true;
}

/* ---- caps ---- */

/* Returns the peak of live activations on each rank in this order. All jobs of a stage run on one rank (can_scale). */
static const int *peak_activations(const struct spec *sp, struct lists lists) {
    int *peak = NEW(int, sp->workers);
    for (int r = 0; r < sp->workers; r++)
        for (int i = 0, live = 0; i < lists.n[r]; i++) {
            const struct job *job = &sp->job[lists.job[r][i]];
            live += job->d == OP_F;
            peak[r] = live > peak[r] ? live : peak[r];
            live -= last_backward(sp, job->s, job->b) == lists.job[r][i];
        }
    return peak;
}

static bool caps_anything(const struct spec *sp) {
    for (int r = 0; sp->limits.cap && r < sp->workers; r++)
        if (sp->limits.cap[r] < INT_MAX)
            return true;
    return false;
}

/* ---- orders ---- */

static void add_rule(struct rules *rules, const char *n, bool strict, const int *cap) {
    GROW(rules->rule, rules->cap, rules->n + 1);
    rules->rule[rules->n++] = (struct rule){n, strict, cap};
}

/* Adds the orders, each with weight gradients at its own priority, before everything else, and only when nothing else
 * can run. */
static void add_orders(struct rules *rules, const struct spec *sp, const int *cap) {
    static const char *const named[] = {"backward_first", "oldest_batch_first", "oldest_stage_first", "forward_first"};
    const char *expression[] = {
        "backward_first(s, b, d)",
        "oldest_batch_first(s, b, d)",
        "oldest_stage_first(s, b, d)",
        "forward_first(s, b, d)",
        format("(d == \"F\" and s or %d - s)", 2 * sp->stages), /* breadth first: a whole stage, then the next */
        format("(d == \"F\" and %d - s or s)", 2 * sp->stages), /* nearest to its microbatch's end first */
    };
    enum { NAMED = sizeof named / sizeof *named, ALL = sizeof expression / sizeof *expression };
    bool split = has_direction(sp, OP_W);
    for (int i = 0; i < ALL; i++)
        add_rule(rules, i < NAMED ? named[i] : format("function(s, b, d) return %s end", expression[i]), false, cap);
    for (int i = 0; i < ALL && split; i++) {
        add_rule(rules, format("function(s, b, d) return d == \"W\" and 1e9 or %s end", expression[i]), false, cap);
        add_rule(rules, format("function(s, b, d) return d == \"W\" and -1 or %s end", expression[i]), false, cap);
    }
    if (split) /* after input gradients, before forwards */
        add_rule(rules, "function(s, b, d) return d == \"W\" and 0.5 or backward_first(s, b, d) end", false, cap);
}

/* Returns whether each rank has one stage. */
static bool has_one_stage_each(const struct spec *sp) {
    bool *has = NEW(bool, sp->workers);
    for (int s = 0; s < sp->stages; s++)
        has[sp->job[job_at(sp, s, 0, OP_F)].rank] = true;
    for (int r = 0; r < sp->workers; r++)
        if (!has[r])
            return false;
    return sp->stages == sp->workers;
}

/* Returns the number of forwards that a stage runs before its first backward in this order, as a Lua function of s. */
static const char *warmups(const struct spec *sp, struct lists lists) {
    struct text t = {0};
    put_word(&t, "({");
    for (int s = 0; s < sp->stages; s++) {
        int r = sp->job[job_at(sp, s, 0, OP_F)].rank, n = 0, d = OP_F;
        for (int i = 0; i < lists.n[r] && d != OP_B && d != OP_I; i++) {
            d = sp->job[lists.job[r][i]].d;
            n += d == OP_F;
        }
        put(&t, "%s %d", s ? "," : "", n);
    }
    put_word(&t, " })[s + 1]");
    return t.s;
}

/* Adds rules that alternate one forward and one backward: with 1F1B's warm-up, with ZB-H2's, and with the order's. */
static void add_turns(struct rules *rules, const struct spec *sp, struct lists lists, const int *cap) {
    const char *warmup[] = {format("%d - s", sp->stages), format("%d - 2 * s", 2 * sp->stages - 1), warmups(sp, lists)};
    for (int i = 0; i < 3; i++)
        add_rule(rules, format("function(s, b, d) return one_forward_one_backward(b, d, %s) end", warmup[i]), true,
                 cap);
}

struct rules rules_for(const struct spec *sp, struct lists lists, bool bytes) {
    struct rules rules = {0};
    const int *peak = peak_activations(sp, lists), *cap = caps_anything(sp) ? sp->limits.cap : NULL;
    bool turns = has_one_stage_each(sp) && !has_direction(sp, OP_R);
    if (!bytes)
        add_orders(&rules, sp, cap);
    if (turns && !bytes)
        add_turns(&rules, sp, lists, cap);
    add_orders(&rules, sp, peak);
    if (turns)
        add_turns(&rules, sp, lists, peak);
    return rules;
}
