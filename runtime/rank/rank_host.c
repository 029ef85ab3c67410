/* A rank's process on a CPU: the host's layers in its one thread, its messages over the world's connections. */
#include "device/device_host.h"
#include "rank_run.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct rank_backend {
    struct host_rank host;
};
const char backend_kind[] = "CPU";
static const char *blas;

void backend_open(const struct rt_self *self, const struct rt_tables *tables) {
    if (tables->model->precision == BF16)
        rank_error(self,
                   "precision = \"bf16\" runs on GPUs only; for CPUs, compile the model with precision = \"fp32\"");
    blas = host_blas();
}

void backend_choose(struct rank_run *r) { (void)r; }

bool backend_take(struct rank_run *r, char *why, size_t nwhy) {
    struct rank_backend *backend = r->backend = calloc(1, sizeof *backend);
    if (backend) {
        backend->host = (struct host_rank){.data = r->data, .transport = r->world.transport, .link = r->world.link};
        if (host_take(&r->replay, &backend->host, &r->program, r->world.rank))
            return true;
    }
    snprintf(why, nwhy, "rank %d: no memory: its arena takes %lld bytes", r->world.rank, (long long)r->self->arena);
    return false;
}

void backend_connect(struct rank_run *r) {
    char why[128];
    bool ok = r->world.prepare(r->world.link, &r->program.rank[r->world.rank], r->program.nmsgs, r->tables->groups,
                               r->backend->host.arena);
    snprintf(why, sizeof why, "rank %d: no memory for its messages", r->world.rank);
    world_verdict(&r->world, ok, why);
}

void backend_begin(struct rank_run *r) { host_begin(&r->replay, (uint64_t)r->flags.seed); }

const char *backend_line(const struct rank_run *r) {
    static char line[128];
    (void)r;
    snprintf(line, sizeof line, "OpenBLAS kernel %s, one thread a rank", blas);
    return line;
}

void backend_step(struct rank_run *r, float *loss) {
    memset(loss, 0, sizeof *loss * (size_t)r->program.batches);
    r->backend->host.loss = loss;
    replay_step(&r->replay);
}

void backend_times(struct rank_run *r, struct rt_stamp *stamp) {
    memcpy(stamp, r->backend->host.stamp, sizeof *stamp * (size_t)r->program.rank[r->world.rank].nins);
}

void backend_report(struct rank_run *r) { (void)r; }

struct home_state backend_pull(struct rank_run *r, const struct rt_home *h) {
    char *arena = r->backend->host.arena;
    struct rt_learned y = learned_at(r->program.model, &r->program.stage[h->stage], h);
    return (struct home_state){(float *)(void *)(arena + y.weight),
                               y.moments < 0 ? NULL : (float *)(void *)(arena + y.moments)};
}

void backend_push(struct rank_run *r, const struct rt_home *h) { (void)r, (void)h; }

/* The other ranks are about to find the same; a launcher that sees one exit may kill them before they could say so. */
void backend_abort(void) {
    const struct timespec linger = {0, 200000000};
    nanosleep(&linger, NULL);
}

void backend_release(struct rank_run *r) {
    host_release(&r->replay, &r->backend->host);
    free(r->backend->host.arena);
    free(r->backend);
}
