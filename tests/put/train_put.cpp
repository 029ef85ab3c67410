/* All ranks of a program in one process, a thread each, with messages by comm_put.cu: a library for `pianola run
 * --device cuda`, linked with tests/standin/. So the stand-in sees what all ranks touch and what orders it, which it
 * cannot between processes: a word awaited too late, or posted too early, is a race, whatever came out. Kernels are
 * seen by pages, so buffers are moved apart to pages of their own. */
#include "device/device_cuda.cuh"
extern "C" {
#include "comm/transports.h"
#include "comm/world.h"
#include "process/train_cuda.h"
}
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <deque>
#include <vector>

enum { APART = 4096 / PARAM_ALIGN };

struct worker { /* of a rank */
    struct training *t;
    struct world world;
    struct replay replay;
    cuda_rank rank;
    cuda_steps steps;
    pthread_t thread;
    const void *mine; /* what it brings to all() */
};
struct training {
    cuda_run *all;
    rt_program program;
    std::vector<rt_rank> ranks;
    std::vector<std::vector<rt_instr>> ins;
    std::deque<rt_buffer> buffers; /* their operands, with offsets APART times as large */
    std::vector<std::vector<rt_home>> homes;
    struct device device; /* the CUDA one, but for who may launch */
    std::vector<worker> workers;
    std::vector<float> loss; /* [rank][step] */
    std::vector<char *> arena;
    pthread_barrier_t barrier;
};

/* ---- the world: threads ---- */

static void all(void *link, const void *mine, void *out, size_t bytes) {
    worker *s = (worker *)link;
    s->mine = mine;
    pthread_barrier_wait(&s->t->barrier);
    for (size_t k = 0; k < s->t->workers.size(); k++)
        memcpy((char *)out + k * bytes, s->t->workers[k].mine, bytes);
    pthread_barrier_wait(&s->t->barrier);
}

extern "C" void world_verdict(const struct world *world, bool ok, const char *why) {
    if (!ok) {
        fprintf(stderr, "pianola: error: %s\n", why);
        abort();
    }
    pthread_barrier_wait(&((worker *)world->link)->t->barrier);
}

/* ---- a rank ---- */

/* A process issues in one thread, so what its ranks share, cuBLASLt's descriptors say, knows no threads. */
static pthread_mutex_t issuing = PTHREAD_MUTEX_INITIALIZER;
static void launch_alone(struct replay *re, const struct rt_instr *x) {
    pthread_mutex_lock(&issuing);
    cuda_device.launch(re, x);
    pthread_mutex_unlock(&issuing);
}

static void prepare(worker *s, int rank) {
    training *t = s->t;
    s->world.rank = rank;
    s->world.size = t->program.workers;
    s->world.link = s;
    s->world.all = all;
    if (cuda_take(&s->replay, &s->rank, &t->program, rank, &cuda_put, false))
        abort();
    s->replay.device = &t->device;
    s->steps.n = 1;
    s->steps.replay = &s->replay;
    s->steps.rank = &s->rank;
    s->steps.graph = !t->all->run.flags.eager;
    s->steps.data = t->all->run.data;
    if (!steps_open(&s->steps))
        abort();
    cuda_put.open(&s->world, &t->program, t->program.groups, &s->rank);
    char why[1000];
    const start from = {(uint64_t)t->all->run.flags.seed, nullptr};
    if (!cuda_begin(&s->replay, &from, why, sizeof why)) /* as late as rank_cuda.cu calls it */
        abort();
}

static void keep_weights(worker *s, int rank) {
    const rt_program *p = &s->t->program;
    const rt_rank *planned = &s->t->all->run.program->rank[rank];
    char *arena = s->t->arena[(size_t)rank] = (char *)calloc(1, (size_t)planned->arena + 1);
    char *host = s->t->arena[(size_t)(p->workers + rank)] = (char *)calloc(1, (size_t)planned->host + 1);
    for (int h = 0; h < planned->nhomes; h++) {
        const rt_stage *y = &p->stage[planned->home[h].stage];
        rt_learned to = learned_at(p->model, y, &planned->home[h]),
                   from = learned_at(p->model, y, &p->rank[rank].home[h]);
        if (to.weight_in == MEMORY_HOST)
            memcpy(host + to.weight, s->rank.host + from.weight, (size_t)to.count * sizeof(float));
        else
            CUDA(cudaMemcpy(arena + to.weight, s->rank.arena + from.weight, (size_t)to.count * sizeof(float),
                            cudaMemcpyDeviceToHost));
    }
}

static void *work(void *arg) {
    worker *s = (worker *)arg;
    const rt_run *run = &s->t->all->run;
    int rank = (int)(s - s->t->workers.data());
    prepare(s, rank);
    for (int64_t step = 0; step <= run->flags.steps; step++) { /* enqueues it, then waits for the one before */
        float sum = 0;
        if (step < run->flags.steps) {
            cuda_feed(&s->replay, step, 0, run->data, s->steps.origin);
            steps_run(&s->steps, step, false);
        }
        if (step == 0)
            continue;
        CUDA(cudaEventSynchronize(s->rank.came[(step - 1) % 2]));
        for (int b = 0; b < s->t->program.batches; b++)
            sum += s->rank.told[(step - 1) % 2][b];
        s->t->loss[(size_t)(rank * run->flags.steps + step - 1)] = sum / (float)s->t->program.batches;
    }
    keep_weights(s, rank);
    CUDA(cudaStreamSynchronize(s->steps.origin));
    steps_close(&s->steps);
    cuda_put.close(s->rank.link);
    cuda_release(&s->replay, &s->rank);
    return NULL;
}

/* ---- all of them ---- */

/* inside: how far into its buffer the operand begins, where it is a piece of one. */
static void move_apart(int64_t *off, int64_t inside = 0) { *off = *off < 0 ? *off : (*off - inside) * APART + inside; }

static const rt_buffer *moved_apart(training *t, const rt_buffer *b, int64_t inside) {
    t->buffers.push_back(*b);
    move_apart(&t->buffers.back().off, inside);
    return &t->buffers.back();
}

static const rt_home *home_of(const rt_program *p, int rank, int set) {
    for (int h = 0; h < p->rank[rank].nhomes; h++)
        if (p->rank[rank].home[h].stage == set)
            return &p->rank[rank].home[h];
    return NULL;
}

/* Is the piece of x's collective that belongs to rank r in place? Then so is every other member's. */
static bool in_place(const rt_program *p, int r, const rt_instr &x, int whole, int piece) {
    return operand_at(&x, piece) == operand_at(&x, whole) + side_of(&p->msg[x.msg], r) * x.bytes;
}

/* Of which buffers operands are pieces: whole weights, or their gradient, by whose shard it is; a shard, by whose
 * share. A share of the gradient is in place where the reduction over replicas is. */
static int64_t bytes_inside(const rt_program *p, int r, const rt_instr &x, int role) {
    int64_t element = precision_bytes(p->model->precision);
    const rt_home *own = home_of(p, r, x.stage), *of = has_peer(x.op) ? home_of(p, x.peer, x.stage) : NULL;
    if (x.op == OP_FETCH && role == ROLE_t) /* a shard of the peer's, or all that it has, fetched or not */
        return of && x.bytes == of->count * element ? of->first * element : 0;
    if (x.op == OP_COPY && role == ROLE_w)
        return own->first * element;
    if ((x.op == OP_SEND_G && role == ROLE_t) || (x.op == OP_TAKE && role == ROLE_src))
        return (x.op == OP_SEND_G ? of : own)->first * 4;
    if (x.op == OP_U && role == ROLE_w)
        return (own->own - own->first) * element;
    if (x.op == OP_ALL_GATHER && role == ROLE_src && in_place(p, r, x, ROLE_w, ROLE_src))
        return x.at.src->off - x.at.w->off;
    if (x.op == OP_REDUCE_SCATTER && role == ROLE_dw && in_place(p, r, x, ROLE_src, ROLE_dw))
        return x.at.dw->off - x.at.src->off;
    if ((x.op == OP_U || x.op == OP_NORM) && role == ROLE_dw)
        for (int32_t i = 0; i < p->rank[r].nins; i++) {
            const rt_instr &y = p->rank[r].ins[i];
            if (y.op == OP_REDUCE_SCATTER && y.stage == x.stage && operand_at(&y, ROLE_dw) == operand_at(&x, role))
                return bytes_inside(p, r, y, role);
        }
    return 0;
}

static void own_programs(training *t) {
    const rt_program *p = t->all->run.program;
    for (int r = 0; r < p->workers; r++) {
        rt_rank k = p->rank[r];
        t->ins.emplace_back(k.ins, k.ins + k.nins);
        t->homes.emplace_back(k.home, k.home + k.nhomes);
        for (rt_instr &x : t->ins.back()) {
            const rt_instr planned = x;
            for (int role = 0; role < NROLES; role++)
                if (operand_in(&planned, role))
                    set_operand(&x, role,
                                moved_apart(t, operand_in(&planned, role), bytes_inside(p, r, planned, role)));
        }
        for (rt_home &h : t->homes.back())
            for (int64_t *off : {&h.weight, &h.opt})
                move_apart(off);
        k.arena *= APART;
        k.host *= APART;
        k.work = k.work ? moved_apart(t, k.work, 0) : NULL;
        k.ins = t->ins.back().data();
        k.home = t->homes.back().data();
        t->ranks.push_back(k);
    }
    t->program = *p;
    t->program.rank = t->ranks.data();
}

extern "C" char **cuda_train(struct cuda_run *run, char *, size_t) {
    training t;
    size_t W = (size_t)run->run.program->workers;
    t.all = run;
    own_programs(&t);
    t.workers.resize(W);
    t.arena.resize(W * NMEMORIES);
    t.loss.resize(W * (size_t)run->run.flags.steps);
    pthread_barrier_init(&t.barrier, NULL, (unsigned)W);
    t.device = cuda_device;
    t.device.launch = launch_alone;
    cuda_linear_plan(&t.program);
    for (worker &s : t.workers) {
        s.t = &t;
        pthread_create(&s.thread, NULL, work, &s);
    }
    for (worker &s : t.workers)
        pthread_join(s.thread, NULL);
    cuda_linear_forget();
    run->run.result->done = run->run.flags.steps;
    run->run.result->norm = NAN;
    for (int64_t step = 0; step < run->run.flags.steps; step++) {
        run->run.loss[step] = 0;
        for (size_t r = 0; r < W; r++)
            run->run.loss[step] += t.loss[r * (size_t)run->run.flags.steps + (size_t)step];
        run->run.makespan[step] = 0;
    }
    char **arena = (char **)calloc(W * NMEMORIES, sizeof *arena);
    for (size_t i = 0; i < W * NMEMORIES; i++)
        arena[i] = t.arena[i];
    return arena;
}
