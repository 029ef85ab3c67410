/* Trains with one thread per rank; each thread does the same as a rank that is a process. */
#include "train.h"
#include "comm/watch.h"
#include "rank/rank_train.h"
#include "store/durable.h"
#include "store/fault.h"
#include "threads.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

struct worker {
    struct rt_program self; /* the program, with this rank alone */
    struct rank_run run;
    struct training training;
    struct rt_routed routed;
    struct nonfinite bad;
    double norm;
    char *arena[NMEMORIES];
    pthread_t thread;
};
struct crew {
    const struct rt_run *run;
    struct worker *worker;
    struct threads *threads;
    struct rt_stamp *spans;
};

static void begin_worker(struct crew *crew, struct worker *worker, int r, const struct world *messages, void *shared) {
    const struct rt_run *of = crew->run;
    struct rank_run *run = &worker->run;
    worker->self = *of->program;
    worker->self.rank = &of->program->rank[r];
    *run = (struct rank_run){.self = &worker->self, .flags = of->flags, .whole = of};
    run->world = threads_world(crew->threads, r, &worker->self);
    run->world.transport = messages->transport;
    run->world.messages = messages->messages;
    run->world.prepare = messages->prepare;
    run->shared = shared;
    run->data = of->data;
    run->held_out = of->held_out;
    run->held_steps = of->held_out ? data_steps(of->held_out) : 0;
    run->start = (struct start){(uint64_t)of->flags.seed, of->weights};
    run->program = *of->program;
    run->lock = -1;
    run->is = (struct checkpoint_run){.seed = (uint64_t)of->flags.seed, .steps = of->flags.steps};
    run->is.context = of->program->model->context;
    data_identity(of->data, &run->is.data_bytes, &run->is.data_hash);
    run->times = of->stamp ? of->stamp[r] : NULL;
    run->keeps = of->kept;
    run->spans = crew->spans;
}

static void *work(void *arg) {
    struct worker *worker = arg;
    struct rank_run *run = &worker->run;
    watch_rank(run->world.rank);
    watch_phase("waits for all ranks to start");
    rank_begin(run, &worker->training);
    if (run->world.rank == 0 && run->whole->begun)
        run->whole->begun(run->whole->context);
    rank_train(run, &worker->training);
    worker->routed = backend_routed(run);
    worker->norm = worker->training.step > run->from ? backend_norm(run, worker->training.step - 1) : NAN;
    worker->bad = run->replay->bad;
    rank_end(run, &worker->training);
    backend_release(run, worker->arena);
    watch_leave();
    run->world.close(run->world.link);
    return NULL;
}

static void sum_results(const struct crew *crew) {
    const struct rt_run *run = crew->run;
    const struct rank_run *first = &crew->worker->run;
    const struct training *training = &crew->worker->training;
    for (int64_t s = first->from; s < training->step && run->makespan; s++)
        run->makespan[s] = rank_makespan(first, s);
    struct rt_result result = {.from = first->from, .done = training->step, .norm = NAN, .signal = training->signal};
    result.twice = training->ahead.twice;
    for (int r = run->program->workers - 1; r >= 0; r--) {
        const struct worker *worker = &crew->worker[r];
        result.routed.pairs += worker->routed.pairs;
        result.routed.dropped += worker->routed.dropped;
        result.norm = isnan(worker->norm) ? result.norm : worker->norm;
        nonfinite_join(&result.bad, &worker->bad);
    }
    if (run->result)
        *run->result = result;
}

static struct crew crew_of(const struct rt_run *run) {
    const struct rt_program *p = run->program;
    struct crew crew = {.run = run};
    crew.worker = calloc((size_t)p->workers, sizeof *crew.worker);
    crew.threads = threads_open(p->workers, p->batches + LOSSES);
    crew.spans = calloc((size_t)p->workers * (size_t)run->flags.steps + 1, sizeof *crew.spans);
    if (!crew.worker || !crew.threads || !crew.spans)
        rank_error(NULL, "no memory for threads");
    return crew;
}

/* Checks the data once more, after every rank has read its last sequence. */
static void check_unchanged(const struct crew *crew) {
    char why[DURABLE_PATH + 512];
    if (!data_same(crew->run->data, why, sizeof why))
        rank_fail(&crew->worker->run, why);
}

/* Starts the watch for deadlines and signals. */
static void watch_all(const struct rt_run *run) {
    const struct watch_args watch = {.program = run->program->name,
                                     .ranks = run->program->workers,
                                     .deadline = run->flags.deadline,
                                     .flight = run->flags.flight,
                                     .group = run->program->groups,
                                     .saved = run->flags.checkpoint};
    if (!watch_start(&watch))
        rank_error(NULL, "cannot start a thread");
}

char **train_threads(const struct rt_run *run, const struct world *messages, void *shared) {
    int W = run->program->workers;
    fault_json(run->flags.json);
    char why[128], **arena = calloc((size_t)W * NMEMORIES, sizeof *arena);
    struct crew crew = crew_of(run);
    for (int r = 0; r < W; r++)
        begin_worker(&crew, &crew.worker[r], r, messages, shared);
    if (run->looks)
        watch_all(run);
    snprintf(why, sizeof why, "cannot start a thread for each of %d ranks", W);
    for (int r = 0; r < W; r++) /* threads that started would wait for ever for one that did not */
        if (pthread_create(&crew.worker[r].thread, NULL, work, &crew.worker[r]) != 0)
            rank_error(NULL, why);
    for (int r = 0; r < W; r++)
        pthread_join(crew.worker[r].thread, NULL);
    if (run->looks)
        watch_stop();
    if (crew.worker->training.signal)
        rank_tell_signal(&crew.worker->run, &crew.worker->training);
    check_unchanged(&crew);
    sum_results(&crew);
    for (int i = 0; i < NMEMORIES * W && arena; i++)
        arena[i] = crew.worker[i % W].arena[i / W];
    threads_close(crew.threads);
    free(crew.worker);
    free(crew.spans);
    return arena;
}
