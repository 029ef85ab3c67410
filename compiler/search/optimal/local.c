/* Local search over orders: see local.h.
 *
 * Most moves take a job on the critical path forward, over a few others, since only the critical path matters. Some
 * moves take any job anywhere. Weight gradients, which nothing waits for, move further. */
#include "local.h"
#include "ir/program.h"
#include "search.h"
#include <math.h>
#include <string.h>

/* ---- the value of an order ---- */

struct trial {
    struct compile c; /* compile of the order; its times have no noise */
    struct judgement judgement;
    double value; /* INFINITY: it does not run, or does not fit */
    struct jitter noisy;
};

static void compile_order(void *context) {
    struct trial *trial = context;
    const struct judgement *judgement = &trial->judgement;
    compile_until(&trial->c, TRIED_OFFLOADS | TRIED_ROOM | TRIED_PREFETCH | TRIED_SPARE | TIMES);
    trial->value = trial->c.timeline->makespan;
    if (judgement->level > 0) {
        trial->noisy = *jitter_make(&trial->c, judgement->level, judgement->seed, judgement->runs);
        trial->value = trial->noisy.p95;
    }
}

/* Compiles the variation of c with these lists. */
static struct trial try_order(const struct compile *c, struct lists lists, struct judgement judgement) {
    struct trial trial = {vary_order(c, lists, true), judgement, .value = INFINITY};
    if (!try(compile_order, &trial))
        trial.value = INFINITY;
    return trial;
}

double judge_order(const struct compile *c, struct lists lists, struct judgement judgement, struct jitter *noisy) {
    struct scratch scratch = scratch_begin();
    struct trial trial = try_order(c, lists, judgement);
    scratch_end(scratch);
    if (noisy)
        *noisy = trial.noisy;
    return trial.value;
}

struct judgement unseen_noise(struct judgement judgement) {
    judgement.seed = random_bits(judgement.seed, 0);
    return judgement;
}

/* ---- moves ---- */

struct dice {
    uint64_t seed, thrown;
};
static int64_t throw(struct dice * dice, int64_t sides) {
    return (int64_t)(random_bits(dice->seed, dice->thrown++) % (uint64_t)sides);
}

struct place {
    int32_t rank, at;
};
struct walk {
    const struct compile *c;
    const struct spec *sp;
    struct lists lists;
    struct judgement judgement;
    struct dice dice;
    struct place *critical; /* jobs on the critical path of the best order */
    int ncritical;
    double value;
};

/* Finds the jobs of the timeline's critical path in the lists. */
static void find_critical(struct walk *walk, const struct trial *trial) {
    struct scratch scratch = scratch_begin();
    const struct spec *sp = walk->sp;
    bool **on = critical_path(trial->c.program, trial->c.timeline), *job = NEW(bool, sp->njobs);
    for (int r = 0; r < trial->c.program->workers; r++)
        for (int i = 0; i < trial->c.program->rank[r].nins; i++) {
            const struct instr *x = &trial->c.program->rank[r].ins[i];
            int32_t j = is_job(x->op) && on[r][i] ? job_at(sp, x->stage, x->batch, x->op) : -1;
            if (j >= 0)
                job[j] = true;
        }
    walk->ncritical = 0;
    for (int r = 0; r < sp->workers; r++)
        for (int i = 0; i < walk->lists.n[r]; i++)
            if (job[walk->lists.job[r][i]])
                walk->critical[walk->ncritical++] = (struct place){r, i};
    scratch_end(scratch);
}

/* Chooses which job to move, and by how many places; below 0 is forward. */
static struct place choose_move(struct walk *walk, int *by) {
    struct dice *dice = &walk->dice;
    const struct lists *lists = &walk->lists;
    bool critical = walk->ncritical > 0 && throw(dice, 4) > 0;
    struct place place;
    if (critical)
        place = walk->critical[throw(dice, walk->ncritical)];
    else {
        do
            place.rank = (int32_t) throw(dice, walk->sp->workers);
        while (lists->n[place.rank] == 0);
        place.at = (int32_t) throw(dice, lists->n[place.rank]);
    }
    bool anywhere = walk->sp->job[lists->job[place.rank][place.at]].d == OP_W && throw(dice, 2) == 0;
    int most = anywhere ? lists->n[place.rank] : 1 << throw(dice, 4);
    *by = 1 + (int) throw(dice, most);
    if (critical ? throw(dice, 4) > 0 : throw(dice, 2) > 0)
        *by = -*by;
    return place;
}

static void rotate_jobs(int32_t *job, int from, int to) {
    int32_t moved = job[from];
    if (from < to)
        memmove(job + from, job + from + 1, sizeof *job * (size_t)(to - from));
    else
        memmove(job + to + 1, job + to, sizeof *job * (size_t)(from - to));
    job[to] = moved;
}

/* Tries a move and keeps it if the value is no worse, so that the search walks along orders that take equally long. */
static void try_move(struct walk *walk) {
    int by;
    struct place place = choose_move(walk, &by);
    int to = place.at + by, last = walk->lists.n[place.rank] - 1;
    to = to < 0 ? 0 : to > last ? last : to;
    if (to == place.at)
        return;
    struct scratch scratch = scratch_begin();
    rotate_jobs(walk->lists.job[place.rank], place.at, to);
    struct trial trial = try_order(walk->c, walk->lists, walk->judgement);
    if (trial.value <= walk->value) {
        walk->value = trial.value;
        find_critical(walk, &trial);
    } else
        rotate_jobs(walk->lists.job[place.rank], to, place.at);
    scratch_end(scratch);
}

int64_t orders_to_try(const struct spec *sp) {
    enum { MOST = 2000, LEAST = 20, JOBS = 400000 };
    int64_t n = JOBS / (sp->njobs + 1);
    return n > MOST ? MOST : n < LEAST ? LEAST : n;
}

double improve_order(const struct compile *c, struct lists lists, struct judgement judgement, struct local *local) {
    const struct spec *sp = c->spec;
    struct walk walk = {c, sp, lists, judgement, {local->seed, 0}, NEW(struct place, sp->njobs), 0, INFINITY};
    struct scratch scratch = scratch_begin();
    struct trial own = try_order(c, lists, judgement);
    walk.value = own.value;
    if (isfinite(own.value))
        find_critical(&walk, &own);
    scratch_end(scratch);
    for (; local->tried < local->orders && isfinite(walk.value); local->tried++) {
        if (local->until > 0 && seconds_now() > local->until)
            break;
        try_move(&walk);
    }
    return walk.value;
}
