/* A diff as JSON: one object, keys in a fixed order. Times are whole ticks, so deltas add up to the last digit. */
#include "base/put_json.h"
#include "diff.h"
#include <math.h>

static void put_pair(struct text *t, const char *key, bool in_a, double a, bool in_b, double b) {
    char x[32], y[32], delta[32];
    put(t, "    \"%s\": { \"a\": %s, \"b\": %s, \"delta\": %s }", key, in_a ? number(a, x) : "null",
        in_b ? number(b, y) : "null", in_a && in_b ? number(b - a, delta) : "null");
}

static void put_op_place(struct text *t, const struct side *side, const struct diff_op *op) {
    put(t, "\"rank\": %d, \"lane\": \"%s\"", op->rank, side->lane[op->lane].name);
}

static void put_seconds_json(struct text *t, const char *key, int64_t ticks, const struct diff *diff) {
    char buf[32];
    put(t, ", \"%s\": %s", key, number((double)ticks * diff->tick, buf));
}

static void put_members(struct text *t, const struct diff *diff, enum diff_class class) {
    static const char *const key[NCLASSES] = {"only_a", "only_b", "split", "moved", "reordered", "longer", "reread"};
    const struct side *s = diff->side[class == ONLY_B], *b = diff->side[1];
    put(t, ",\n  \"%s\": [", key[class]);
    for (int i = 0, n = 0; i < s->n; i++) {
        const struct diff_op *op = &s->op[i], *other = class >= MOVED && op->match >= 0 ? &b->op[op->match] : NULL;
        if (!diff_has(op, class))
            continue;
        put(t, "%s\n    { \"op\": \"%s\", ", n++ ? "," : "", diff_op_name(op));
        put_op_place(t, s, op);
        struct names names = diff_names(op);
        if (class == SPLIT)
            put(t, op->op == OP_B ? ", \"is\": [\"%s\", \"%s\"]" : ", \"is\": [\"%s\"]",
                job_name(&names, op->stage, op->batch, op->op == OP_B ? OP_I : OP_B),
                job_name(&names, op->stage, op->batch, OP_W));
        if (class == MOVED) {
            put(t, ", \"to\": { ");
            put_op_place(t, b, other);
            put(t, " }");
        }
        if (class == REREAD)
            put(t, ", \"a\": %d, \"b\": %d", op->version, other->version);
        if (class == LONGER) {
            put_seconds_json(t, "a", diff_took(s, op), diff);
            put_seconds_json(t, "b", diff_took(b, other), diff);
        }
        put(t, " }");
    }
    put(t, "]");
}

static void put_roots_json(struct text *t, const struct diff *diff) {
    put(t, ",\n  \"shifted\": %d,\n  \"roots\": [", diff->shifted);
    for (int i = 0; i < diff->nroots; i++) {
        const struct root *root = &diff->root[i];
        const struct side *side = diff->side[root->a < 0];
        const struct diff_op *op = &side->op[root->a < 0 ? root->b : root->a];
        put(t, "%s\n    { \"op\": \"%s\", ", i ? "," : "", diff_op_name(op));
        put_op_place(t, side, op);
        put_seconds_json(t, "shift", root->shift, diff);
        put_seconds_json(t, "effect", root->effect, diff);
        put(t, ", \"pushed\": %d, \"critical\": %s }", root->pushed, root->critical ? "true" : "false");
    }
    put(t, "]");
}

/* Writes the sizes of both sides' work, and the share of the model for which F is 1. */
static void put_sizes_json(struct text *t, const struct diff *diff) {
    char x[32];
    put(t, ",\n  \"sizes\": {\n");
    for (int i = 0; i < NSIZES; i++) {
        put_pair(t, size_name[i], true, (double)diff->side[0]->size.of[i], true, (double)diff->side[1]->size.of[i]);
        put(t, i + 1 < NSIZES ? ",\n" : "\n  }");
    }
    put(t, ",\n  \"share\": %s", diff->share > 0 ? number(1 / diff->share, x) : "null");
}

/* Writes what changed and why, as a sentence and as causes with their effects. */
static void put_why_json(struct text *t, const struct diff *diff) {
    static const char *const class_name[] = {"only_a",          "only_b", "split", "moved",
                                             "reordered",       "longer", NULL,    [OVERLAPPED] = "overlapped",
                                             [RECUT] = "stages"};
    struct measure measure = diff_measure(diff, true);
    struct text sentence = {0};
    char x[32];
    put_diff_sentence(&sentence, diff, &measure);
    put(t, ",\n  \"sentence\": ");
    put_string(t, sentence.s);
    put(t, ",\n  \"causes\": [");
    for (int i = 0; i < diff->causes.n; i++) {
        const struct diff_cause *cause = &diff->causes.of[i];
        put(t, "%s\n    { \"change\": \"%s\", \"op\": ", i ? "," : "", class_name[cause->class]);
        put(t, cause->op < 0 ? "null" : "\"%s\"", cause->op < 0 ? "" : op_name[cause->op]);
        put(t, cause->rank < 0 ? ", \"rank\": null" : ", \"rank\": %d", cause->rank);
        put(t, ", \"count\": %d, \"effect\": %s }", cause->n,
            cause->unknown ? "null" : number((double)cause->effect * diff->tick, x));
    }
    put(t, "%s]", diff->causes.n ? "\n  " : "");
}

static void put_account_json(struct text *t, const struct diff *diff) {
    put(t, ",\n  \"account\": {\n    \"rank\": { \"a\": %d, \"b\": %d }", diff->ends[0], diff->ends[1]);
    for (int k = 0; k < NACCOUNTS; k++) {
        put(t, ",\n");
        put_pair(t, account_name[k], true, (double)diff->account[0][k] * diff->tick, true,
                 (double)diff->account[1][k] * diff->tick);
    }
    put(t, "\n  }");
}

/* Writes a probability; null: there is none. */
static void put_p(struct text *t, double p) {
    char buf[32];
    put(t, ", \"p\": %s", number_or_null(p, buf));
}

static void put_groups_json(struct text *t, const char *key, const char *name, const struct diff_group *group, int n) {
    char a[32], b[32], bias[32], low[32], high[32];
    put(t, ",\n  \"%s\": [", key);
    for (int i = 0; i < n; i++) {
        const struct diff_group *k = &group[i];
        put(t, "%s\n    { \"%s\": \"%s\", \"changed\": %d, \"a\": %s, \"b\": %s", i ? "," : "", name, k->name,
            k->longer, number(k->a, a), number(k->b, b));
        if (k->n)
            put(t, ", \"median_ratio\": %s, \"quartiles\": [%s, %s]", number(k->bias, bias), number(k->low, low),
                number(k->high, high));
        put_p(t, k->p);
        put(t, " }");
    }
    put(t, "]");
}

/* Writes each side's steps and the offsets added to its ranks' clocks, in seconds; null: it is predicted. A null error
 * means unknown: some rank does not hear from all others. */
static void put_sides_json(struct text *t, const struct diff *diff) {
    char x[32];
    put(t, ",\n  \"measured\": {");
    for (int k = 0; k < 2; k++) {
        const struct side *side = diff->side[k];
        put(t, "%s\n    \"%c\": ", k ? "," : "", 'a' + k);
        if (!side->steps) {
            put(t, "null");
            continue;
        }
        put(t, "{ \"steps\": %d, \"clocks\": [", side->steps->nsteps);
        for (int r = 0; r < side->workers; r++)
            put(t, "%s%s", r ? ", " : "", number(side->clocks.offset ? side->clocks.offset[r] : 0, x));
        put(t, "], \"clock_error\": %s }", number_or_null(side->clocks.error, x));
    }
    put(t, "\n  },\n  \"rate\": %s,\n  \"makespan_p\": ", diff->base.rate > 0 ? number(diff->base.rate, x) : "null");
    put(t, "%s,\n  \"bubble_p\": ", isnan(diff->p[F_MAKESPAN]) ? "null" : number(diff->p[F_MAKESPAN], x));
    put(t, "%s", isnan(diff->p[F_BUBBLE]) ? "null" : number(diff->p[F_BUBBLE], x));
}

void emit_diff_json(struct text *t, const struct diff *diff) {
    put(t, "{\n  \"schema\": 1,\n  \"a\": ");
    put_string(t, diff->side[0]->name);
    put(t, ",\n  \"b\": ");
    put_string(t, diff->side[1]->name);
    put(t, ",\n  \"same\": %s,\n  \"unit\": ", diff_same(diff) ? "true" : "false");
    if (diff->unit)
        put_string(t, diff->unit);
    else
        put(t, "null");
    put_sizes_json(t, diff);
    put(t, ",\n  \"figures\": {\n");
    for (int f = 0; f < NFIGURES; f++) {
        double a, b;
        bool in_a = diff_figure(diff, f, 0, &a), in_b = diff_figure(diff, f, 1, &b);
        put_pair(t, figure_name[f], in_a, a, in_b, b);
        put(t, f + 1 < NFIGURES ? ",\n" : "\n  }");
    }
    put_why_json(t, diff);
    for (int c = 0; c < NCLASSES; c++)
        put_members(t, diff, (enum diff_class)c);
    put(t, ",\n  \"repeated\": %s,\n  \"rewired\": %s", diff->repeated ? "true" : "false",
        diff->rewired ? "true" : "false");
    if (diff->tick > 0) {
        put_account_json(t, diff);
        put_roots_json(t, diff);
        put_groups_json(t, "durations", "op", diff->kinds.of, diff->kinds.n);
        put_groups_json(t, "links", "link", diff->links.of, diff->links.n);
        put_sides_json(t, diff);
    }
    put(t, "\n}\n");
}
