/* All ranks of a program in one process, a thread each, with messages by comm_put.cu: a library for `pianola run
 * --device cuda`, linked with tests/gpu/standin/. Unlike between processes, the stand-in sees all ranks' accesses and
 * their order. So a word that is awaited too late or posted too early is a race, even if the data are right. The
 * stand-in sees kernels' accesses by page, so buffers are moved to pages of their own. */
#include "rank/rank_cuda.cuh"
extern "C" {
#include "comm/transports.h"
#include "process/train.h"
#include "process/train_cuda.h"
}
#include <pthread.h>
#include <sched.h>
#include <deque>
#include <vector>

enum { APART = 4096 / PARAM_ALIGN };

struct put_rank { /* a group of one, as if the rank were a process */
    rank_backend backend;
    cuda_group group;
    struct replay replay;
    cuda_rank rank;
};
struct moved {
    const rt_program *planned;
    rt_program program;
    std::vector<rt_rank> ranks;
    std::vector<std::vector<rt_instr>> ins;
    std::deque<rt_buffer> buffers; /* their operands, with offsets APART times as large */
    std::vector<std::vector<rt_home>> homes;
    struct device device; /* the CUDA device, except that one thread launches at a time */
};

/* ---- a rank's backend, as far as it differs from rank_cuda.cu's ---- */

/* A process issues from one thread, so state that its ranks share, such as cuBLASLt's descriptors, is not thread-safe.
 * */
static pthread_mutex_t issuing = PTHREAD_MUTEX_INITIALIZER;
static void launch_alone(struct replay *re, const struct rt_instr *x) {
    pthread_mutex_lock(&issuing);
    cuda_device.launch(re, x);
    pthread_mutex_unlock(&issuing);
}

extern "C" void backend_choose(struct rank_run *) {}
extern "C" void backend_report(struct rank_run *) {}
extern "C" void backend_look(struct rank_run *) { sched_yield(); }
void cuda_wait(struct rank_run *, cudaEvent_t event) { CUDA(cudaEventSynchronize(event)); }

extern "C" bool backend_take(struct rank_run *run, char *, size_t) {
    put_rank *own = new put_rank();
    cuda_steps *steps = &own->group.steps;
    own->backend.group = &own->group;
    own->backend.rank = steps->rank = &own->rank;
    run->backend = &own->backend;
    run->replay = steps->replay = &own->replay;
    steps->n = 1;
    steps->graph = !run->flags.eager;
    steps->timing = run->times ? TIME_SOME : TIME_NONE;
    if (cuda_take(run->replay, &own->rank, &run->program, run->world.rank, &cuda_put, run->flags.deadline > 0) ||
        (run->times && cuda_time(&own->rank, &run->program.rank[run->world.rank])))
        return false;
    run->replay->device = &((moved *)run->shared)->device;
    return steps_open(steps) && cuda_take_mirror(run);
}

extern "C" void backend_connect(struct rank_run *run) {
    cuda_put.open(&run->world, &run->program, run->program.groups, run->backend->rank);
}

/* Returns the rank's arenas as planned, with the weights that its homes have learned. */
extern "C" void backend_release(struct rank_run *run, char **arena) {
    put_rank *own = (put_rank *)run->backend;
    const rt_program *p = ((moved *)run->shared)->planned;
    const rt_rank *planned = &p->rank[run->world.rank];
    arena[MEMORY_DEVICE] = (char *)calloc(1, (size_t)planned->arena + 1);
    arena[MEMORY_HOST] = (char *)calloc(1, (size_t)planned->host + 1);
    for (int h = 0; h < planned->nhomes; h++) {
        rt_learned to = learned_at(p->model, &p->stage[planned->home[h].stage], &planned->home[h]);
        struct checkpoint_shard shard = backend_pull(run, &run->program.rank[run->world.rank].home[h]);
        if (shard.count > 0)
            memcpy(arena[to.weight_in] + to.weight, shard.weight, (size_t)shard.count * sizeof(float));
    }
    CUDA(cudaStreamSynchronize(own->group.steps.origin));
    steps_close(&own->group.steps);
    cuda_put.close(own->rank.link);
    cuda_release(run->replay, &own->rank);
    free(own->backend.mirror);
    delete own;
}

/* ---- all of them ---- */

/* inside: offset of the operand in its buffer, if it is a piece. */
static void move_apart(int64_t *off, int64_t inside = 0) { *off = *off < 0 ? *off : (*off - inside) * APART + inside; }

static const rt_buffer *moved_apart(moved *t, const rt_buffer *b, int64_t inside) {
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

/* Returns whether rank r's piece of x's collective is in place. If so, every other member's is too. */
static bool in_place(const rt_program *p, int r, const rt_instr &x, int whole, int piece) {
    return operand_at(&x, piece) == operand_at(&x, whole) + side_of(&p->msg[x.msg], r) * x.bytes;
}

/* Returns the offset of an operand in its buffer: of a shard in the whole weights or gradient, or of a share in a
 * shard. A share of the gradient is in place if the reduction over replicas is. */
static int64_t bytes_inside(const rt_program *p, int r, const rt_instr &x, int role) {
    int64_t element = precision_bytes(p->model->precision);
    const rt_home *own = home_of(p, r, x.stage), *of = has_peer(x.op) ? home_of(p, x.peer, x.stage) : NULL;
    if (x.op == OP_FETCH && role == ROLE_t) /* the peer's shard, or all that the peer has, fetched or not */
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

static void own_programs(moved *t) {
    const rt_program *p = t->planned;
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
    moved t = {};
    rt_run all = run->run;
    struct world none = {};
    t.planned = all.program;
    own_programs(&t);
    all.program = &t.program;
    t.device = cuda_device;
    t.device.launch = launch_alone;
    cuda_attention_plan(&t.program);
    cuda_linear_plan(&t.program);
    cuda_update_plan(&t.program);
    char **arena = train_threads(&all, &none, &t);
    cuda_linear_forget();
    cuda_update_forget();
    cuda_attention_forget();
    return arena;
}
