/* Local search over the orders of the winner's jobs (optimal/local.h), from several seeds at once. The best result does
 * not depend on which seed finishes first. */
#include "search/optimal/closed.h"
#include "search/optimal/local.h"
#include "tune.h"
#include <math.h>
#include <string.h>

enum { SEEDS = 4 };

struct improving {
    const struct compile *c; /* compiled up to its schedule */
    struct lists lists;
    struct judgement judgement;
    uint64_t seed;
    int64_t orders;
    int next;
    int64_t tried; /* orders tried by all seeds that have answered */
    double value;  /* the best answer so far, and its order, rank after rank */
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
    answer->value = improve_order(improving->c, improving->lists, improving->judgement, &local);
    answer->tried = local.tried;
    for (int r = 0; r < improving->c->spec->workers; r++) {
        memcpy(job, improving->lists.job[r], sizeof *job * (size_t)improving->lists.n[r]);
        job += improving->lists.n[r];
    }
}

static void take_result(void *context, int task, const void *from) {
    struct improving *improving = context;
    const struct improved_order *answer = from;
    improving->tried += answer ? answer->tried : 0;
    if (!answer || answer->value > improving->value || (answer->value == improving->value && task >= improving->from))
        return;
    improving->value = answer->value;
    improving->from = task;
    memcpy(improving->job, answer->job, sizeof *answer->job * (size_t)improving->c->spec->njobs);
}

/* Compiles up to the schedule. */
static struct compile schedule(const struct script_args *args) {
    struct compile c = compile_of(script_load(args), NULL);
    compile_until(&c, SCHED);
    return c;
}
static struct lists lists_of(const struct compile *c) { return (struct lists){c->sched->order, c->sched->norder}; }

/* Returns the arguments for running a script that lists the jobs. */
static struct script_args sequence_args(const struct search_space *space, const struct candidate *winner,
                                        const struct compile *c) {
    struct text t = {0};
    emit_sequence(&t, c->costs, lists_of(c));
    return args_of_script(space, winner, false, t.s); /* the list has the recomputations */
}

/* Returns why a list of each rank's jobs would not be the same schedule; NULL: it would be. */
static const char *unlike_its_list(const struct spec *sp) {
    if (sp->updates.every)
        return "its updates are within the step";
    if (sp->choices.offload)
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

struct improve_call { /* the arguments of improve_winner, and its result */
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
    struct compile c = schedule(&own);
    const char *why = unlike_its_list(c.spec);
    if (why)
        return why;
    struct script_args args = sequence_args(space, winner, &c);
    c = schedule(&args);
    struct lists lists = lists_of(&c);
    got->before = got->after = judge_order(&c, lists, judgement, NULL);
    if (!(fabs(got->before - value) <= 1e-9 * value))
        return "a list of its jobs is not the same schedule";
    struct improving improving = {&c,
                                  lists,
                                  unseen_noise(judgement),
                                  seed,
                                  .orders = orders_to_try(c.spec),
                                  .value = INFINITY,
                                  .job = NEW(int32_t, c.spec->njobs)};
    got->whole =
        run_pool(&(struct pool){&improving, sizeof(struct improved_order) + sizeof(int32_t) * (size_t)c.spec->njobs,
                                next_seed, improve, take_result});
    got->orders = improving.tried;
    if (isinf(improving.value))
        return NULL;
    const int32_t *job = improving.job;
    for (int r = 0; r < c.spec->workers; job += lists.n[r++])
        memcpy(lists.job[r], job, sizeof *job * (size_t)lists.n[r]);
    double after = judge_order(&c, lists, judgement, NULL);
    if (after < got->before) {
        got->after = after;
        emit_sequence(&got->script, c.costs, lists);
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
