/* A rank on a CPU: its thread runs the host's layers, and its messages use the world's connections. */
#include "device/device_host.h"
#include "layers/clip.h"
#include "rank_run.h"
#include "units/unit_check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct rank_backend {
    struct host_rank host;
    struct replay replay;
    struct rt_routed routed; /* pairs routed before the last step */
};
const char backend_kind[] = "CPU";
static const char *blas;

void backend_open(const struct rt_program *self) {
    if (self->model->precision == BF16)
        rank_error(self,
                   "precision = \"bf16\" runs on GPUs only; for CPUs, compile the model with precision = \"fp32\"");
    blas = host_blas();
    char why[512];
    if (!units_check(self, &unit_memory_host, why, sizeof why))
        rank_error(self, why);
}

void backend_choose(struct rank_run *run) { (void)run; }

bool backend_take(struct rank_run *run, char *why, size_t nwhy) {
    struct rank_backend *backend = run->backend = calloc(1, sizeof *backend);
    if (backend) {
        backend->host =
            (struct host_rank){.data = run->data, .transport = run->world.transport, .link = run->world.messages};
        run->replay = &backend->replay;
        bool ok = host_take(run->replay, &backend->host, &run->program, run->world.rank);
        run->replay->purpose = rank_evaluates(run) ? VALIDATES : TRAINS;
        if (ok)
            return true;
    }
    if (run->whole)
        snprintf(why, nwhy, "out of memory: the ranks of this schedule together need more than this machine has");
    else
        snprintf(why, nwhy, "rank %d: no memory: its arenas take %lld bytes", run->world.rank,
                 (long long)(run->self->rank->arena + run->self->rank->host));
    return false;
}

void backend_connect(struct rank_run *run) {
    char why[128];
    bool ok = run->world.prepare(run->world.messages, &run->program.rank[run->world.rank], run->program.nmsgs,
                                 run->self->groups, run->backend->host.arena);
    snprintf(why, sizeof why, "rank %d: no memory for its messages", run->world.rank);
    world_verdict(&run->world, ok, why);
}

void backend_begin(struct rank_run *run) {
    char why[1000];
    if (!host_begin(run->replay, &run->start, why, sizeof why))
        rank_error(run->self, why);
}

const char *backend_line(const struct rank_run *run) {
    static char line[128];
    (void)run;
    snprintf(line, sizeof line, "matrix products by %s, one thread a rank", blas);
    return line;
}

const bool backend_leads = false;
void backend_enqueue(struct rank_run *run, int64_t step) {
    struct rank_backend *backend = run->backend;
    run->replay->step = step;
    backend->host.times = rank_keeps(run, step);
    backend->host.cpu = NAN;
    backend->host.first = INFINITY;
    backend->host.last = 0;
}
void backend_look(struct rank_run *run) { (void)run; }

void backend_wait(struct rank_run *run, int64_t step, float *loss, double *when) {
    (void)step;
    memset(loss, 0, sizeof *loss * (size_t)run->program.batches);
    run->backend->host.loss = loss;
    run->backend->host.when = when;
    run->backend->routed = run->backend->host.routed;
    replay_step(run->replay);
}

const uint64_t *backend_found(struct rank_run *run) { return run->backend->host.found; }

void backend_again(struct rank_run *run, int64_t step, float *loss, double *when) {
    run->backend->host.routed = run->backend->routed;
    backend_wait(run, step, loss, when);
}

static const uint64_t *rank_norm(const struct rank_run *run) {
    int64_t at = norm_at(&run->program.rank[run->world.rank]);
    return at < 0 ? NULL : (const uint64_t *)(const void *)(run->backend->host.arena + at);
}

const uint64_t *backend_settle(struct rank_run *run) {
    run->replay->purpose = SETTLES;
    replay_step(run->replay);
    run->replay->purpose = TRAINS;
    return rank_norm(run);
}

void backend_validate(struct rank_run *run, int64_t step, float *loss) {
    struct replay *re = run->replay;
    int64_t trained = re->step;
    re->purpose = VALIDATES;
    run->backend->host.data = run->held_out;
    backend_enqueue(run, step);
    backend_wait(run, step, loss, NULL);
    run->backend->host.data = run->data;
    re->purpose = TRAINS;
    re->step = trained;
}

double backend_waited(struct rank_run *run) {
    return host_waited(&run->program.rank[run->world.rank], run->backend->host.stamp);
}

struct rt_stamp backend_span(struct rank_run *run, int64_t step) {
    (void)step;
    return (struct rt_stamp){run->backend->host.first, run->backend->host.last, NAN};
}

double backend_norm(struct rank_run *run, int64_t step) {
    const uint64_t *norm = rank_norm(run);
    (void)step;
    return norm ? norm_value(norm) : NAN;
}

void backend_times(struct rank_run *run, int64_t step, struct rt_stamp *stamp) {
    (void)step;
    memcpy(stamp, run->backend->host.stamp, sizeof *stamp * (size_t)run->program.rank[run->world.rank].nins);
}

struct rt_routed backend_routed(struct rank_run *run) {
    return run->backend->host.routed;
}

void backend_report(struct rank_run *run) { (void)run; }
int64_t backend_bytes_at_end(struct rank_run *run) {
    (void)run;
    return -1;
}

struct checkpoint_shard backend_pull(struct rank_run *run, const struct rt_home *home) {
    return host_pull(run->replay, home);
}

void backend_push(struct rank_run *run, const struct rt_home *home, const float *weight, const float *moments) {
    host_push(run->replay, home, weight, moments);
}

/* Waits a little. The other ranks are about to find the same error; a launcher that sees one rank exit may kill the
 * others before they report it. */
void backend_abort(void) {
    const struct timespec linger = {0, 200000000};
    nanosleep(&linger, NULL);
}

void backend_release(struct rank_run *run, char **arena) {
    host_release(run->replay, &run->backend->host);
    if (arena) {
        arena[MEMORY_DEVICE] = run->backend->host.arena;
        arena[MEMORY_HOST] = run->backend->host.host;
    } else {
        free(run->backend->host.arena);
        free(run->backend->host.host);
    }
    free(run->backend);
}
