#include "partition.h"

static double forward_seconds(const struct cuts *cuts, const struct part *part) {
    double sum = 0;
    for (int l = 0; l < cuts->profile->nlayers; l++)
        sum += is_between(cuts, part->from, part->to, l) ? cuts->profile->layer[l].forward : 0;
    return sum;
}

static double backward_seconds(const struct cuts *cuts, const struct part *part) {
    double sum = 0;
    for (int l = 0; l < cuts->profile->nlayers; l++)
        sum += is_between(cuts, part->from, part->to, l) ? cuts->profile->layer[l].backward : 0;
    return sum;
}

/* Writes a Lua list of one figure per stage. */
static void put_stage_times(struct text *out, const char *name, const struct cuts *cuts, const struct partition *p,
                            double (*of)(const struct cuts *, const struct part *)) {
    char buf[32];
    put(out, "local %s = {", name);
    for (int s = 0; s < p->nparts; s++)
        put(out, "%s %s", s ? "," : "", number(of(cuts, &p->part[s]), buf));
    put(out, " }\n");
}

static void put_stage_ranks(struct text *out, const struct partition *p) {
    put(out, "local ranks = { -- of each stage; microbatch b runs on the next of them in turn\n");
    for (int s = 0; s < p->nparts; s++) {
        put(out, "  {");
        for (int i = 0; i < p->part[s].replicas; i++)
            put(out, "%s %d", i ? "," : "", p->part[s].rank[i]);
        put(out, " },\n");
    }
    put(out, "}\n");
}

/* Returns the least number of microbatches, at least n, that divides evenly among the ranks of each stage. */
static int64_t whole_turns(const struct partition *p, int n) {
    int64_t turn = 1;
    for (int s = 0; s < p->nparts; s++)
        turn = common_multiple(turn, p->part[s].replicas);
    return (n + turn - 1) / turn * turn;
}

void emit_partition(struct text *out, const struct cuts *cuts, const struct partition *p, bool costs) {
    int workers = 0;
    for (int s = 0; s < p->nparts; s++)
        workers += p->part[s].replicas;
    put(out, "-- PipeDream's partition of %s on %s, as `pianola partition` found it (Harlap 2018,\n",
        tame(cuts->profile->name), counted(workers, "rank"));
    put(out, "-- arXiv 1806.03377), with 1F1B-RR: a stage's ranks take microbatches in turn (Narayanan 2019), and are "
             "updated\n"
             "-- when each has had one. Backwards read the weights that their forwards read.\n");
    if (!costs && p->nparts > 1) {
        put(out, "-- The model must be cut as the partition is: cut = {");
        for (int s = 1; s < p->nparts; s++)
            put(out, "%s %d", s > 1 ? "," : "", p->part[s].from + 1);
        put(out, " } in its script.\n");
    }
    put(out, "local p = params { batches = %lld }\n", (long long)whole_turns(p, 4 * workers));
    put_stage_ranks(out, p);
    put(out, "local warmups = {");
    for (int s = 0; s < p->nparts; s++)
        put(out, "%s %d", s ? "," : "", p->part[s].versions - 1);
    put(out, " } -- forwards of each rank of a stage before its first backward\n");
    if (costs) {
        put(out, "-- Seconds of a microbatch in each stage.\n");
        put_stage_times(out, "forward", cuts, p, forward_seconds);
        put_stage_times(out, "backward", cuts, p, backward_seconds);
    }
    put(out,
        "\nreturn schedule {\n"
        "  workers = %d, stages = %d, batches = p.batches,\n"
        "  w = function(s, b, d)\n"
        "    local of = ranks[s + 1]\n"
        "    local rank = of[b %% #of + 1]\n"
        "    return rank, rank\n"
        "  end,\n"
        "  n = function(s, b, d)\n"
        "    local ahead = warmups[s + 1] + 1\n"
        "    if d == \"U\" then return one_forward_one_backward(b, \"B\", ahead) + 0.5 end\n"
        "    return one_forward_one_backward(b // #ranks[s + 1], d, ahead)\n"
        "  end,\n"
        "  order = \"strict\",\n"
        "%s"
        "  update = function(s) return #ranks[s + 1] end,\n"
        "}\n",
        workers, p->nparts,
        costs ? "  cost = function(s, b, d)\n"
                "    if d ~= \"U\" then return d == \"F\" and forward[s + 1] or backward[s + 1] end\n"
                "  end,\n"
              : "");
}
