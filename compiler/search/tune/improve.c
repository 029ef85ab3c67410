/* Local search over the orders of the winner's jobs (optimal/local.h), from several seeds at once. The best of what the
 * seeds come to does not depend on which was done first. */
#include "search/optimal/closed.h"
#include "search/optimal/local.h"
#include "tune.h"
#include <math.h>
#include <string.h>

enum { SEEDS = 4 };

struct improving {
    const struct spec *sp;
    const struct stage *st;
    const struct graph *graph;
    struct lists lists;
    struct judgement judgement;
    uint64_t seed;
    int64_t orders;
    int next;
    int64_t tried; /* of all that have answered */
    double value;  /* of the best answer so far, and its order, rank after rank */
    int from;
    int32_t *job;
};
struct improved_order { /* a child's answer */
    double value;
    int64_t tried;
    int32_t job[];
};

static int next_seed(void *context) {
    struct improving *improving = context;
    return improving->next < SEEDS ? improving->next++ : -1;
}

static void improve(void *context, int task, void *to) {
    const struct improving *improving = context;
    struct improved_order *answer = to;
    struct local local = {random_bits(improving->seed, (uint64_t)task), improving->orders, 0, 0};
    int32_t *job = answer->job;
    answer->value =
        improve_order(improving->sp, improving->st, improving->graph, improving->lists, improving->judgement, &local);
    answer->tried = local.tried;
    for (int r = 0; r < improving->sp->workers; r++) {
        memcpy(job, improving->lists.job[r], sizeof *job * (size_t)improving->lists.n[r]);
        job += improving->lists.n[r];
    }
}

static void take(void *context, int task, const void *from) {
    struct improving *improving = context;
    const struct improved_order *answer = from;
    improving->tried += answer ? answer->tried : 0;
    if (!answer || answer->value > improving->value || (answer->value == improving->value && task >= improving->from))
        return;
    improving->value = answer->value;
    improving->from = task;
    memcpy(improving->job, answer->job, sizeof *answer->job * (size_t)improving->sp->njobs);
}

struct loaded { /* compiled up to its order */
    struct spec *sp;
    struct stage *st;
    struct graph *graph;
    struct lists lists;
};
static struct loaded load(const struct script_args *args) {
    struct loaded got = {.sp = script_load(args)};
    got.st = cost_stages(got.sp);
    got.graph = graph_build(got.sp);
    struct sched *sched = sched_run(got.sp, got.st, got.graph);
    got.lists = (struct lists){sched->order, sched->norder};
    return got;
}

/* As a script that lists the jobs, with what is needed to run it. */
static struct script_args sequence_args(const struct search_space *space, const struct candidate *winner,
                                        const struct loaded *loaded) {
    struct text t = {0};
    emit_sequence(&t, loaded->sp, loaded->lists);
    return args_of_script(space, winner, false, t.s); /* the list has the recomputations */
}

/* Why a list of the jobs on their ranks would be another schedule; NULL: it would not. */
static const char *unlike_its_list(const struct spec *sp) {
    if (sp->update)
        return "its updates are within the step";
    if (sp->offload)
        return "it offloads tensors";
    if (sp->names.member)
        return "teams of ranks share its stages, and the search moves jobs of single ranks";
    if (sp->pred)
        return "its script says itself what its jobs wait for";
    for (int32_t j = 0; j < sp->njobs; j++)
        if (sp->job[j].home != sp->job[job_at(sp, sp->job[j].s, 0, OP_F)].home)
            return "it replicates the weights of its stages";
    return NULL;
}

struct improve_call { /* the arguments of improve_winner, and its answer */
    const struct search_space *space;
    const struct candidate *winner;
    double value;
    struct judgement judgement;
    uint64_t seed;
    struct improvement got;
};

static const char *search_orders(const struct search_space *space, const struct candidate *winner, double value,
                                 struct judgement judgement, uint64_t seed, struct improvement *got) {
    struct script_args own = args_of(space, winner);
    struct loaded loaded = load(&own);
    const char *why = unlike_its_list(loaded.sp);
    if (why)
        return why;
    struct script_args args = sequence_args(space, winner, &loaded);
    loaded = load(&args);
    got->before = got->after = judge_order(loaded.sp, loaded.st, loaded.graph, loaded.lists, judgement, NULL);
    if (!(fabs(got->before - value) <= 1e-9 * value))
        return "a list of its jobs is not the same schedule";
    struct improving improving = {loaded.sp,
                                  loaded.st,
                                  loaded.graph,
                                  loaded.lists,
                                  unseen_noise(judgement),
                                  seed,
                                  .orders = orders_to_try(loaded.sp),
                                  .value = INFINITY,
                                  .job = NEW(int32_t, loaded.sp->njobs)};
    got->whole =
        run_pool(&(struct pool){&improving, sizeof(struct improved_order) + sizeof(int32_t) * (size_t)loaded.sp->njobs,
                                next_seed, improve, take});
    got->orders = improving.tried;
    if (isinf(improving.value))
        return NULL;
    const int32_t *job = improving.job;
    for (int r = 0; r < loaded.sp->workers; job += loaded.lists.n[r++])
        memcpy(loaded.lists.job[r], job, sizeof *job * (size_t)loaded.lists.n[r]);
    double after = judge_order(loaded.sp, loaded.st, loaded.graph, loaded.lists, judgement, NULL);
    if (after < got->before) {
        got->after = after;
        emit_sequence(&got->script, loaded.sp, loaded.lists);
    }
    return NULL;
}

static void run_improve(void *context) {
    struct improve_call *call = context;
    call->got.why = search_orders(call->space, call->winner, call->value, call->judgement, call->seed, &call->got);
}

struct improvement improve_winner(const struct search_space *space, const struct candidate *winner, double value,
                                  struct judgement judgement, uint64_t seed) {
    struct improve_call call = {space, winner, value, judgement, seed, {0}};
    if (!try(run_improve, &call))
        call.got.why = "a list of its jobs does not compile";
    return call.got;
}
