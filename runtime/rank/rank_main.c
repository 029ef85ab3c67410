/* The main of a rank's own program: the ranks meet and agree, then replay step by step, under the watchdog. */
#include "store/durable.h"
#include "store/fault.h"
#include "store/fingerprint.h"
#include "rank_train.h"
#include "store/import.h"
#include "comm/watch.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Copies the rank into a table of all the program's ranks, whose other entries stay empty, and indexes it. */
static void own_program(struct rank_run *run) {
    const struct rt_rank *own = run->self->rank;
    struct rt_rank *all = calloc((size_t)run->self->workers, sizeof *all);
    int32_t *memory = calloc(rank_index_size(own), sizeof *memory);
    if (!all || !memory)
        rank_error(run->self, "no memory");
    run->program = *run->self;
    run->program.rank = all;
    all[own->number] = *own;
    rank_index(&all[own->number], memory);
}

/* ---- meeting ---- */

static const struct {
    const char *title;
    bool (*open)(struct world *world, const struct launch *how, char *why, size_t nwhy);
} transport[] = {
#define X(name, title) {title, name##_open},
    HOST_TRANSPORTS(X)
#undef X
};

static void meet_ranks(struct rank_run *run) {
    struct launch *how = &run->flags.launch;
    char why[512];
    how->program = run->self->hash;
    if (how->over == HOST_tcp && how->rank < 0 && run->self->workers > 1) {
        snprintf(why, sizeof why,
                 "nothing says which rank this process is. Start all %d together: mpirun --app app.mpi, srun "
                 "--multi-prog multi-prog.slurm, or with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set",
                 run->self->workers);
        rank_error(run->self, why);
    }
    watch_meeting(true);
    watch_phase("waits for all ranks to start");
    if (!transport[how->over].open(&run->world, how, why, sizeof why))
        rank_error(run->self, why);
    watch_meeting(false);
    run->world.self = run->self;
}

static void open_held_out(struct rank_run *run) {
    char why[DURABLE_PATH + 512] = "--val: the model's input is not text, so there is nothing to hold out";
    const struct rt_model *m = run->self->model;
    if (m->input == INPUT_TOKENS)
        run->held_out =
            data_open(m, rank_reads(run) ? run->flags.held_out : NULL, (uint64_t)run->flags.seed, why, sizeof why);
    world_verdict(&run->world, run->held_out, why);
}

static void open_weights_file(struct rank_run *run) {
    char why[1000] = "";
    run->start.seed = (uint64_t)run->flags.seed;
    if (run->flags.weights)
        run->start.weights = named_open(run->flags.weights, why, sizeof why);
    world_verdict(&run->world, !run->flags.weights || run->start.weights, why);
}

/* Checks that at least one rank reads each tensor of the file, so that none is lost silently. */
static void check_rest(struct rank_run *run) {
    struct named_list *list = named_all(run->start.weights);
    size_t n = list->n, size = (size_t)run->world.size;
    char why[1000] = "", *all = calloc(n + 1, size + 1), *mine = all + n * size;
    if (!all)
        rank_error(run->self, "no memory");
    for (size_t i = 0; i < n; i++)
        mine[i] = list->at[i].used;
    run->world.all(run->world.link, mine, all, n);
    for (size_t i = 0; i < n * size; i++)
        list->at[i % n].used |= all[i];
    free(all);
    bool ok = run->world.rank > 0 || import_check_rest(run->start.weights, why, sizeof why);
    world_verdict(&run->world, ok, why);
    if (*why)
        fprintf(stderr, "pianola: warning: %s\n", why);
}

/* Checks the weights file before anything runs: each rank reads its homes' tensors and reports missing ones. The ranks
 * that compute a stage compare its frozen parameters. */
static void check_weights_file(struct rank_run *run) {
    char why[1000] = "";
    const struct rt_rank *k = &run->program.rank[run->world.rank];
    bool ok = true;
    if (!run->start.weights)
        return;
    for (int h = 0; ok && h < k->nhomes; h++)
        ok = import_check(run->start.weights, run->program.model, &run->program.stage[k->home[h].stage], why,
                          sizeof why);
    for (int i = 0; ok && i < k->nfrozen; i++)
        ok = import_check(run->start.weights, run->program.model, &run->program.stage[k->frozen[i].stage], why,
                          sizeof why);
    world_verdict(&run->world, ok, why);
    check_rest(run);
    for (int h = 0; h < k->nhomes; h++)
        if (import_differs(run->start.weights, run->flags.weights, named_said(run->start.weights),
                           &run->program.stage[k->home[h].stage], why, sizeof why)) {
            fprintf(stderr, "pianola: rank %d: %s\n", run->world.rank, why);
            break;
        }
}

static void prepare_run(struct rank_run *run, struct training *training) {
    char why[DURABLE_PATH + 512];
    run->data = data_open(run->self->model, rank_reads(run) ? run->flags.data : NULL, (uint64_t)run->flags.seed, why,
                          sizeof why);
    world_verdict(&run->world, run->data, why);
    if (run->flags.held_out)
        open_held_out(run);
    open_weights_file(run);
    rank_agree(run);
    own_program(run);
    check_weights_file(run);
    rank_begin(run, training);
    if (run->flags.timeline)
        rank_timeline_open(run); /* comes last: its times begin here */
}

/* ---- results ---- */

/* Returns the fingerprint that `pianola run` prints: each rank adds up the fingerprints of the shards that it owns. */
static uint64_t fingerprint_of_ranks(struct rank_run *run) {
    const struct rt_program *p = &run->program;
    uint64_t hash = 0, *all = malloc(sizeof hash * (size_t)run->world.size);
    if (!all)
        rank_error(run->self, "no memory");
    for (int s = 0; s < p->sets; s++) {
        if (!rank_owns(run, s))
            continue;
        struct checkpoint_shard shard = backend_pull(run, rank_home(run, s));
        hash +=
            fingerprint_stage((struct rt_piece){p->model, &p->stage[s], shard.first, shard.count}, shard.weight, false);
    }
    run->world.all(run->world.link, &hash, all, sizeof hash);
    hash = 0;
    for (int r = 0; r < run->world.size; r++)
        hash += all[r];
    free(all);
    return hash;
}

/* Counts the routed pairs of all ranks in this run. */
static struct rt_routed count_routed(struct rank_run *run) {
    struct rt_routed mine = backend_routed(run), sum = {0, 0}, *all = malloc(sizeof *all * (size_t)run->world.size);
    if (!all)
        rank_error(run->self, "no memory");
    run->world.all(run->world.link, &mine, all, sizeof mine);
    for (int r = 0; r < run->world.size; r++) {
        sum.pairs += all[r].pairs;
        sum.dropped += all[r].dropped;
    }
    free(all);
    return sum;
}

/* Prints a loss; JSON has no number for inf and nan. */
static void print_loss(const char *name, float loss) {
    if (isfinite(loss))
        printf("  \"%s\": %.9g,\n", name, loss);
    else
        printf("  \"%s\": null,\n", name);
}

/* Prints the run's results. device_bytes: device memory of the rank that uses most, at the end; -1: there is no
 * device. */
static void print_result(const struct rank_run *run, const struct training *training, uint64_t hash,
                         struct rt_routed routed, int64_t device_bytes) {
    int64_t steps = training->step - run->from;
    double each = steps ? training->seconds / (double)steps : 0;
    if (run->flags.json) {
        printf("{\n  \"schema\": 1,\n  \"schedule\": \"%s\",\n  \"steps\": %lld,\n  \"resumed_from\": %lld,\n",
               run->self->name, (long long)training->step, (long long)run->from);
        if (steps) {
            print_loss("loss_first", training->first);
            print_loss("loss_last", training->last);
            printf("  \"seconds_per_step\": %.6g,\n", each);
        }
        if (routed.pairs)
            printf("  \"routed_pairs\": %lld,\n  \"dropped_pairs\": %lld,\n", (long long)routed.pairs,
                   (long long)routed.dropped);
        if (run->self->model->post_validation)
            printf("  \"steps_run_twice\": %lld,\n", (long long)training->ahead.twice);
        if (device_bytes >= 0)
            printf("  \"device_bytes_at_end\": %lld,\n", (long long)device_bytes);
        printf("  \"weights\": \"%016llx\"\n}\n", (unsigned long long)hash);
        return;
    }
    if (run->from)
        printf("resumed   from step %lld\n", (long long)run->from);
    if (steps)
        printf("loss      %.4f to %.4f in %lld step%s, %.3f ms a step\n", training->first, training->last,
               (long long)steps, steps == 1 ? "" : "s", 1e3 * each);
    if (run->self->model->post_validation)
        printf("rerun     %lld of %lld steps, because their updates had to be clipped afterwards\n",
               (long long)training->ahead.twice, (long long)steps);
    if (routed.pairs)
        printf("dropped   %lld of %lld (token, expert) pairs, %.3g%%\n", (long long)routed.dropped,
               (long long)routed.pairs, 100.0 * (double)routed.dropped / (double)routed.pairs);
    if (device_bytes >= 0)
        printf("memory    %lld bytes of device memory at the end, on the rank that uses most\n",
               (long long)device_bytes);
    printf("weights   %016llx (fingerprint) after %lld step%s\n", (unsigned long long)hash, (long long)training->step,
           training->step == 1 ? "" : "s");
}

static void release_run(struct rank_run *run, struct training *training) {
    rank_end(run, training);
    backend_release(run, NULL);
    run->world.close(run->world.link);
    data_close(run->data);
    if (run->held_out)
        data_close(run->held_out);
    if (run->start.weights)
        named_close(run->start.weights);
    free((void *)(uintptr_t)run->program.rank[run->world.rank].lane_at); /* the index begins there */
    free((void *)(uintptr_t)run->program.rank);
}

int rank_main(int argc, char **argv, const struct rt_program *self) {
    struct rank_run run = {.self = self, .lock = -1};
    struct training training = {.first = 0};
    for (int i = 1; i < argc; i++) /* before flags are read: an error may concern one */
        if (strcmp(argv[i], "--json") == 0)
            fault_json(true);
    rank_parse(&run.flags, argc, argv, self);
    backend_open(self);
    struct watch_args watch = {.program = self->name,
                               .rank = self->rank->number,
                               .deadline = run.flags.deadline,
                               .flight = run.flags.flight,
                               .group = self->groups,
                               .saved = run.flags.checkpoint,
                               .abort = backend_abort};
    if (!watch_start(&watch))
        rank_error(self, "cannot start a thread");
    meet_ranks(&run);
    prepare_run(&run, &training);
    if (run.world.rank == 0) {
        fprintf(stderr, "pianola: %d process%s%s, %s\n", run.world.size, run.world.size == 1 ? "" : "es over ",
                run.world.size == 1 ? "" : transport[run.flags.launch.over].title, backend_line(&run));
        if (!run.flags.data && self->model->input == INPUT_TOKENS)
            fprintf(stderr, "pianola: no --data: training on random tokens; give a text with --data FILE\n");
    }
    rank_train(&run, &training);
    int64_t device_bytes = backend_bytes_at_end(&run);
    uint64_t hash = fingerprint_of_ranks(&run);
    struct rt_routed routed = count_routed(&run);
    if (run.world.rank == 0)
        print_result(&run, &training, hash, routed, device_bytes);
    if (run.flags.timeline)
        rank_timeline_write(&run, training.step);
    if (training.signal && run.world.rank == 0)
        rank_tell_signal(&run, &training);
    watch_end();
    release_run(&run, &training);
    return training.signal ? 128 + training.signal : 0;
}
