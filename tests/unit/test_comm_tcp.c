/* Ranks over TCP compute the bits that threads of one process compute over comm_local. Also checks their messages when
 * a rank dies, or is not at the right place. */
#include "passes/runtime_program.h"
#include "layers/host.h"
#include "handmade.h"
#include "random_spec.h"
#include "tcp_programs.h"
#include "process/train.h"
#include <sys/resource.h>

/* ---- among all ranks ---- */

static void exchange(struct world *w, int call, size_t n) {
    char *mine = malloc(n + 1), *all = malloc(n * (size_t)w->size + 1);
    for (size_t i = 0; i < n; i++)
        mine[i] = (char)noise(w->rank, call, (int64_t)i);
    w->all(w->link, mine, all, n);
    for (int r = 0; r < w->size; r++)
        for (size_t i = 0; i < n; i++)
            MUST(all[(size_t)r * n + i] == (char)noise(r, call, (int64_t)i));
    free(mine);
    free(all);
}

/* Makes random calls, the same on all ranks; which rank is late differs. */
static void talk(int rank, int size, void *with) {
    enum { CALLS = 120, LONGEST = 300000 };
    struct world w;
    float *x = malloc(sizeof *x * LONGEST);
    (void)with;
    sleep_ms((int)(noise(rank, 0, 0) % 60));
    open_world(&w, rank, size);
    for (int call = 1; call <= CALLS; call++) {
        uint64_t draw = noise(99, call, size);
        int n = (int)(draw >> 33) % (draw % 16 == 0 ? LONGEST : 50);
        if (noise(rank, call, -1) % 8 == 0)
            sleep_ms(2);
        if (draw % 3 == 0)
            exchange(&w, call, (size_t)n);
        else {
            begin_sum(&w, call, x, n);
            for (int more = (int)(draw >> 40) % 3; draw % 3 == 1 && more > 0; more--)
                exchange(&w, call + 10 * more, 10);
            end_sum(&w, call, x, n);
        }
    }
    close_world(&w);
    free(x);
}

Test(comm_tcp, all_and_sums, .timeout = 30) {
    for (int size = 2; size <= MOST; size *= 2) {
        new_room();
        run_ranks(size, talk, NULL);
        leave_room();
    }
}

/* ---- programs ---- */

static struct run compiled(struct spec *sp) {
    struct costs *costs = costs_make(sp);
    struct graph *g = graph_build(costs);
    struct program *p = lower_of(sp, costs, g, sched_of(sp, costs, g));
    mem_of(sp, p);
    lanes_sync(p);
    struct run run = {.p = runtime_program(costs, p)};
    run.groups = run.p->groups;
    return run;
}

static void init_home(const struct rt_program *p, const struct rt_home *home, char *arena, uint64_t seed) {
    const struct rt_stage *s = &p->stage[home->stage];
    int64_t all = weight_count(p->model, s);
    float *whole = NEW(float, all + home->count);
    host_init(p->model, s, whole, seed);
    for (int64_t i = 0; i < home->count && home->first + i < all; i++)
        ((float *)(void *)(arena + home->weight))[i] = whole[home->first + i];
}

/* Trains in this process and over TCP, to the same weights and losses. Returns the number of collectives. */
static int expect_same_training(struct spec *sp, uint64_t seed) {
    struct run run = compiled(sp);
    const struct rt_program *p = run.p;
    char why[200];
    float loss[STEPS], sum;
    struct data *data = data_open(&sp->model->rt, NULL, seed, why, sizeof why);
    cr_assert(data, "%s", why);
    struct rt_run threads = {
        .program = p, .data = data, .flags = {.seed = (int64_t)seed, .steps = STEPS}, .loss = loss};
    double makespan[STEPS];
    threads.makespan = makespan;
    char **wanted = host_train(&threads);
    int collectives = 0;
    run.data = data;
    run.arena = NEW(char *, p->workers);
    run.loss = shared(sizeof(float) * (size_t)(STEPS * p->batches));
    for (int r = 0; r < p->workers; r++) {
        run.arena[r] = shared((size_t)p->rank[r].arena + 1);
        for (int h = 0; h < p->rank[r].nhomes; h++)
            init_home(p, &p->rank[r].home[h], run.arena[r], seed);
    }
    spawn(&run);
    for (int r = 0; r < p->workers; r++) {
        const struct rt_rank *k = &p->rank[r];
        for (int h = 0; h < k->nhomes; h++)
            cr_expect(!memcmp(run.arena[r] + k->home[h].weight, wanted[r] + k->home[h].weight,
                              (size_t)k->home[h].count * sizeof(float)),
                      "seed %d: weights of stage %d on rank %d differ", (int)seed, k->home[h].stage, r);
        for (int i = 0; i < k->nins; i++)
            collectives += is_group(k->ins[i].op);
    }
    for (int s = 0; s < STEPS; s++) {
        sum = 0;
        for (int b = 0; b < p->batches; b++)
            sum += run.loss[s * p->batches + b];
        sum /= (float)p->batches;
        cr_expect(!memcmp(&sum, &loss[s], 4), "seed %d: loss of step %d differs", (int)seed, s);
    }
    for (int r = 0; r < p->workers; r++)
        munmap(run.arena[r], (size_t)p->rank[r].arena + 1);
    munmap(run.loss, sizeof(float) * (size_t)(STEPS * p->batches));
    host_free(p, wanted);
    data_close(data);
    return collectives;
}

static struct model *mlp(int batches) {
    struct model *m = model_integers(2, 8, batches);
    for (int i = 0; i < 6; i++)
        add(m, i == 5 ? LAYER_mse : i % 2 ? LAYER_relu : LAYER_linear, i % 2 ? 0 : 8);
    m->rt.lr = 0.015625f;
    return m;
}

Test(comm_tcp, random_schedules_train_to_the_same_bits, .timeout = 30) {
    int collectives = 0;
    host_blas();
    for (uint64_t seed = 0; seed < 14; seed++) {
        struct spec *sp = draw_spec(seed, ORDERS | COARSE);
        sp->model = mlp(sp->batches);
        collectives += expect_same_training(sp, seed);
        free_all();
    }
    cr_expect_gt(collectives, 20);
}

/* Data parallel: float sums, whose bits depend on the order, over a group of four. */
Test(comm_tcp, gradients_are_summed_in_rank_order, .timeout = 30) {
    struct spec *sp = empty_spec(4, 2, 8);
    host_blas();
    for (int s = 0; s < 2; s++)
        for (int b = 0; b < 8; b++) {
            add_job(sp, s, b, OP_F, b % 4, b % 4);
            add_job(sp, s, b, OP_B, b % 4, b % 4);
        }
    sp->model = gpt(16, 16, 64, 8, 2, 16, 2);
    cr_expect_eq(expect_same_training(sp, 5), 8);
}

/* ---- handmade programs: only messages and reductions, larger than socket buffers ---- */

struct builder {
    struct rt_program *p;
    struct rt_meeting *msg;
    struct rt_instr *ins[MOST];
};

static struct builder new_program(int workers) {
    struct builder b = {.p = NEW(struct rt_program, 1), .msg = NEW(struct rt_meeting, 200)};
    *b.p = (struct rt_program){.name = "handmade", .workers = workers, .batches = 1, .msg = b.msg};
    b.p->rank = NEW(struct rt_rank, workers);
    b.p->model = NEW(struct rt_model, 1);
    b.p->stage = NEW(struct rt_stage, 200); /* messages name their numbers */
    for (int r = 0; r < workers; r++)
        b.ins[r] = NEW(struct rt_instr, 200);
    return b;
}

static struct rt_rank *rank_in(struct builder *b, int r) { return (struct rt_rank *)&b->p->rank[r]; }

/* Takes part in the next meeting with `bytes` bytes of rank r's arena, on a lane for each peer or group. */
static void join(struct builder *b, int r, int op, int peer, int lane, int64_t bytes) {
    struct rt_rank *k = rank_in(b, r);
    struct rt_meeting *m = &b->msg[b->p->nmsgs];
    struct rt_instr *x = &b->ins[r][k->nins++];
    struct rt_buffer *tensor = NEW(struct rt_buffer, 1);
    *x = (struct rt_instr){.op = (enum op)op, .lane = lane, .batch = -1, .msg = b->p->nmsgs};
    *(is_group(op) ? &x->group : &x->peer) = peer;
    x->bytes = m->bytes = bytes;
    *tensor = (struct rt_buffer){k->arena, bytes};
    set_operand(x, op == OP_ALL_REDUCE ? ROLE_dw : ROLE_t, tensor);
    if (!m->rank) {
        m->rank = NEW(int32_t, MOST);
        m->off = NEW(int64_t, MOST);
    }
    ((int32_t *)m->rank)[m->n] = r;
    ((int64_t *)m->off)[m->n++] = k->arena;
    k->arena += (bytes + 63) / 64 * 64;
}

static void add_message(struct builder *b, int from, int to, int64_t bytes) {
    join(b, from, OP_SEND_F, to, 2 * to, bytes);
    join(b, to, OP_RECV_F, from, 2 * from + 1, bytes);
    b->p->nmsgs++;
}

static void add_reduction(struct builder *b, const int32_t *groups, int number, int64_t floats) {
    for (int n = number; n > 0; groups++)
        n -= *groups < 0;
    for (; *groups >= 0; groups++)
        join(b, *groups, OP_ALL_REDUCE, number, 2 * MOST + number, 4 * floats);
    b->p->nmsgs++;
}

static void finish_program(struct builder *b) {
    for (int r = 0; r < b->p->workers; r++) {
        struct rt_rank *k = rank_in(b, r);
        k->nlanes = LANES;
        k->ins = b->ins[r];
        rank_index(k, NEW(int32_t, rank_index_size(k)));
    }
}

static void fill(char *arena, int64_t bytes, int rank) {
    for (int64_t i = 0; i + 4 <= bytes; i += 4)
        memcpy(arena + i, &(float){noisy(rank, 0, i)}, 4);
}

/* Starts from arenas of random floats; after the steps, all bytes of all arenas equal comm_local's. */
static void expect_same_arenas(const struct rt_program *p, const int32_t *groups, int late) {
    char *arena[MOST], *over_tcp[MOST];
    for (int r = 0; r < p->workers; r++) {
        arena[r] = shared((size_t)p->rank[r].arena + 1);
        over_tcp[r] = shared((size_t)p->rank[r].arena + 1);
        fill(arena[r], p->rank[r].arena, r);
        fill(over_tcp[r], p->rank[r].arena, r);
    }
    run_threads(p, arena);
    float loss[STEPS];
    struct run run = {.p = (struct rt_program *)p, .groups = groups, .arena = over_tcp, .loss = loss, .late = late};
    spawn(&run);
    for (int r = 0; r < p->workers; r++) {
        cr_expect(!memcmp(arena[r], over_tcp[r], (size_t)p->rank[r].arena), "arenas of rank %d differ", r);
        munmap(over_tcp[r], (size_t)p->rank[r].arena + 1);
        munmap(arena[r], (size_t)p->rank[r].arena + 1);
    }
}

static const int32_t no_groups[] = {-1};

Test(comm_tcp, eight_mebibytes_each_way_at_once, .timeout = 30) {
    struct builder b = new_program(2);
    for (int i = 0; i < 2; i++) {
        add_message(&b, 0, 1, 8 << 20);
        add_message(&b, 1, 0, 8 << 20);
    }
    finish_program(&b);
    expect_same_arenas(b.p, no_groups, 0);
}

Test(comm_tcp, messages_and_reductions_of_all_sizes, .timeout = 30) {
    static const int64_t sizes[] = {1, 4096, 17, 0, 3 << 20, 64, 65536};
    static const int32_t groups[] = {0, 1, 2, 3, 4, -1, 0, 2, 4, -1, 1, 3, -1, 2, -1, 1, 2, 4, -1, -1};
    struct builder b = new_program(5);
    for (int round = 0; round < 2; round++) {
        for (int from = 0; from < 5; from++)
            for (int to = 0; to < 5; to++)
                if (from != to && (from + 2 * to) % 5 != 0)
                    add_message(&b, from, to, sizes[(from + 3 * to + round) % 7]);
        for (int g = 0; g < 5; g++)
            add_reduction(&b, groups, g, (int64_t[]){300001, 1, 90000, 5, 777}[(g + round) % 5]);
    }
    finish_program(&b);
    expect_same_arenas(b.p, groups, 0);
}

/* Two ranks list their connections in different orders. */
Test(comm_tcp, a_connection_for_each_edge_and_group, .timeout = 30) {
    enum { BIG, SMALL, MESSAGE };
    static const int32_t groups[] = {0, 1, 2, -1, 0, 1, -1, -1},
                         order[2][3] = {{BIG, SMALL, MESSAGE}, {MESSAGE, SMALL, BIG}};
    struct builder b = new_program(3);
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 3; i++) {
            b.p->nmsgs = order[r][i];
            if (b.p->nmsgs == MESSAGE)
                join(&b, r, r ? OP_RECV_F : OP_SEND_F, 1 - r, 0, 1000);
            else
                join(&b, r, OP_ALL_REDUCE, b.p->nmsgs, 1 + b.p->nmsgs, 4000);
        }
    b.p->nmsgs = BIG;
    join(&b, 2, OP_ALL_REDUCE, BIG, 1, 4000);
    b.p->nmsgs = 3;
    finish_program(&b);
    expect_same_arenas(b.p, groups, 0);
}

static double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

Test(comm_tcp, a_rank_that_waits_sleeps, .timeout = 30) {
    struct builder b = new_program(2);
    add_message(&b, 1, 0, 1000);
    finish_program(&b);
    double before = cpu_seconds();
    expect_same_arenas(b.p, no_groups, 200);
    cr_expect_lt(cpu_seconds() - before, 0.2, "of %g s", STEPS * 0.2);
}

Test(comm_tcp, one_rank_alone, .timeout = 30) {
    static const int32_t groups[] = {0, -1, -1};
    struct builder b = new_program(1);
    add_reduction(&b, groups, 0, 100);
    finish_program(&b);
    expect_same_arenas(b.p, groups, 0);
    struct world w;
    struct launch nobody = {.rank = -1, .size = -1, .local = -1};
    char why[512], all = 'x', mine = 'a';
    cr_assert(tcp_open(&w, &nobody, why, sizeof why), "%s", why);
    w.all(w.link, &mine, &all, 1);
    cr_expect(w.rank == 0 && w.size == 1 && all == 'a');
    w.close(w.link);
}

/* ---- death ---- */

/* Lets ranks 0 and 1 wait for rank 2 in step 1. */
static void meet_trouble(int rank, const struct builder *b, const int32_t *groups, void (*trouble)(struct rt_instr *)) {
    struct world w;
    struct replay re;
    struct host_rank h = {0};
    open_world(&w, rank, 3);
    h.transport = w.transport;
    h.link = w.link;
    MUST(host_take(&re, &h, b->p, rank) && w.prepare(w.link, &b->p->rank[rank], b->p->nmsgs, groups, h.arena));
    for (re.step = 0; re.step < STEPS; re.step++) {
        watch_step(&re, re.step);
        if (re.step == 1 && rank > 0)
            trouble(b->ins[rank]);
        replay_step(&re);
    }
    _exit(0);
}

/* Expects rank 0 and, unless it sleeps, rank 1 to exit with 1 and say why; at least one of them as wanted. */
static void expect_trouble(void (*one)(struct rt_instr *), void (*two)(struct rt_instr *), bool one_ends,
                           const char *wanted, const char *or_wanted) {
    static const int32_t groups[] = {0, 1, 2, -1, -1};
    struct builder b = new_program(3);
    groups_of_program = groups;
    new_room();
    add_message(&b, 1, 0, 100);
    add_message(&b, 2, 1, 100);
    add_reduction(&b, groups, 0, 1000);
    finish_program(&b);
    for (int r = 0; r < 3; r++)
        if (forked(r))
            meet_trouble(r, &b, groups, r == 1 ? one : two);
    int named = 0;
    for (int r = 0; r < 1 + one_ends; r++) {
        cr_expect_eq(exit_of(r), 1, "%s", said_by(r));
        cr_expect(strstr(said_by(r), ": rank "), "rank %d: %s", r, said_by(r));
        named += strstr(said_by(r), wanted) || strstr(said_by(r), or_wanted);
    }
    cr_expect_geq(named, 1, "%s", said_by(0));
    for (int r = 1 + one_ends; r < 3; r++)
        kill(pids[r], SIGKILL);
    for (int r = 1 + one_ends; r < 3; r++)
        cr_expect_neq(exit_of(r), 0);
    leave_room();
}

static void go_on(struct rt_instr *x) { (void)x; }
static void sleep_long(struct rt_instr *x) { (void)x, sleep(20); }
static void be_killed(struct rt_instr *x) {
    (void)x;
    sleep_ms(50);
    kill(getpid(), SIGKILL);
}
static void send_another(struct rt_instr *x) { x->msg = 77; }

#define CLOSED "rank 2 closed its connection\n", "rank 2: Connection reset by peer\n"

Test(comm_tcp, a_rank_that_dies_ends_the_others, .timeout = 30) { expect_trouble(go_on, be_killed, true, CLOSED); }

/* Rank 0 notices the death although it waits only for rank 1. */
Test(comm_tcp, a_death_is_noticed_while_waiting_for_another, .timeout = 10) {
    expect_trouble(sleep_long, be_killed, false, CLOSED);
}

Test(comm_tcp, a_mix_up_is_noticed, .timeout = 30) {
    static const char wanted[] =
        "rank 2 sent message 77 in turn 1, 100 bytes, where message 1 in turn 1, 100 bytes, was due";
    expect_trouble(go_on, send_another, true, wanted, wanted);
}
