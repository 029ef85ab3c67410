/* `pianola check`: compiles, which includes the proof. */
#include "base/put_json.h"
#include "command.h"
#include "pipeline.h"
#include <string.h>

/* Returns the number of the model's parameters. Parameters that every member of a team holds whole are counted once,
 * with the first member. Shared sets of weights have entries after the stages' own. */
static long long parameters_of_model(const struct compile *c) {
    const struct spec *sp = c->spec;
    long long n = 0;
    for (int s = 0; sp->model && s < sp->stages + sp->names.sets; s++)
        for (const struct rt_layer *l = c->costs->stage[s].rt.layer;
             l < c->costs->stage[s].rt.layer + c->costs->stage[s].rt.nlayers; l++) {
            struct rt_parameters all = parameters_of(&sp->model->rt, l, sp->names.tables > 0 && s < sp->stages);
            for (int i = 0; i < all.n && l->set == SET_OWN; i++)
                n += all.at[i].split || !sp->names.member || sp->names.member[s].place <= 0 ? all.at[i].count : 0;
        }
    return n;
}

/* The ranks that hold one stage's weights and run its jobs, according to w() for the jobs that read its weights. */
struct placed {
    int32_t *rank;      /* per home: 1 + the rank that computes with it (the last seen); 0: no job has this home */
    bool *computes;     /* per rank */
    int homes, ranks;   /* number of distinct homes and ranks */
    int away, jobs;     /* away: jobs whose home is another rank */
    bool one_rank_each; /* no home serves two ranks */
};

/* Counts stage s's homes and ranks, all homes being single ranks. Reuses the previous stage's tables. */
static struct placed place_stage(const struct spec *sp, int s, struct placed tables) {
    struct placed placed = {.rank = tables.rank, .computes = tables.computes, .one_rank_each = true};
    memset(placed.rank, 0, sizeof *placed.rank * (size_t)sp->workers);
    memset(placed.computes, 0, sizeof *placed.computes * (size_t)sp->workers);
    for (int b = 0; b < sp->batches; b++)
        for (int d = 0; d < NDIRS; d++) {
            int32_t j = job_at(sp, s, b, d);
            if (j < 0 || d == OP_W)
                continue;
            int home = sp->job[j].home, rank = sp->job[j].rank;
            placed.homes += placed.rank[home] == 0;
            placed.ranks += !placed.computes[rank];
            placed.one_rank_each &= placed.rank[home] == 0 || placed.rank[home] == rank + 1;
            placed.rank[home] = rank + 1;
            placed.computes[rank] = true;
            placed.away += home != rank;
            placed.jobs++;
        }
    return placed;
}

/* Warns where w() seems to return its two ranks the wrong way round. Normally all ranks that compute with a stage's
 * weights share one home, or each rank has its own replica. If the two are swapped, each rank takes the weights from
 * several homes, none of which serves another rank, so every home holds and updates a replica that no other rank
 * needs. */
static void warn_of_swapped_ranks(const struct costs *costs) {
    const struct spec *sp = costs->spec;
    struct placed placed = {.rank = NEW(int32_t, sp->workers), .computes = NEW(bool, sp->workers)}, first = {0};
    int stage = -1;
    int64_t away = 0, jobs = 0;
    bool lists = sp->names.member; /* lists of ranks as homes: only one order of results is valid there */
    for (int32_t j = 0; j < sp->njobs; j++)
        lists |= sp->job[j].home >= sp->workers;
    for (int s = 0; s < sp->stages && !lists; s++) {
        if (is_bare(costs, s))
            continue;
        placed = place_stage(sp, s, placed);
        if (!placed.one_rank_each || placed.homes < placed.ranks)
            return;
        away += placed.away;
        jobs += placed.jobs;
        if (placed.homes > placed.ranks && stage < 0) {
            first = placed;
            stage = s;
        }
    }
    if (stage >= 0 && 2 * away >= jobs)
        fprintf(stderr,
                "pianola: warning: %s: does w() return its ranks in the wrong order? The weights' home comes first, "
                "then the rank that computes; here stage %d has %d homes and %d rank%s that compute%s, and %lld of "
                "%lld jobs fetch their weights\n",
                sp->file, stage, first.homes, first.ranks, first.ranks == 1 ? "" : "s", first.ranks == 1 ? "s" : "",
                (long long)away, (long long)jobs);
}

int cmd_check(const struct settings *settings) {
    struct compile c = {.args = settings->args};
    compile_all(&c, settings->dump);
    warn_of_swapped_ranks(c.costs);
    bool json = settings->json;
    long long n = 0;
    for (int k = 0; k < c.program->workers; k++)
        n += c.program->rank[k].nins;
    printf(json ? "{\"schema\": 1, \"schedule\": %s" : "%s", json ? quoted(c.spec->name) : c.spec->name);
    bool layers = c.spec->model && !is_costs(c.spec);
    if (json) {
        printf(", \"proved\": true, \"jobs\": %d, \"instructions\": %lld, \"workers\": %d", c.spec->njobs, n,
               c.spec->workers);
        if (layers)
            printf(", \"parameters\": %lld", parameters_of_model(&c));
        print_claims(NULL);
        printf("}\n");
        return 0;
    }
    printf(": proved: %s, %s on %s", counted(c.spec->njobs, "job"), counted(n, "instruction"),
           counted(c.spec->workers, "rank"));
    if (layers)
        printf(", %s", counted(parameters_of_model(&c), "parameter"));
    printf(", at any speed of ranks and links\n");
    return 0;
}
