/* The reported figures against numbers worked out by hand, and their two machine-readable forms. */
#include "compiler.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* Builds a spec from jobs, with their places and durations. Costs are the usual F=1, B=2, I=W=R=1. */
static struct spec *spec_of(int workers, int stages, int batches) {
    struct spec *sp = &NEW(struct costed, 1)->spec;
    size_t cells = (size_t)stages * (size_t)batches * NDIRS;
    sp->name = "tiny";
    sp->file = "tiny.lua";
    sp->workers = workers;
    sp->stages = stages;
    sp->batches = batches;
    sp->job = NEW(struct job, cells);
    sp->at = NEW(int32_t, cells);
    memset(sp->at, -1, cells * sizeof *sp->at);
    return sp;
}

static void job(struct spec *sp, int s, int b, int d, int rank) {
    sp->at[(s * sp->batches + b) * NDIRS + d] = sp->njobs;
    sp->job[sp->njobs++] = (struct job){s, b, (uint8_t)d, .rank = rank, .home = rank, .cost = d == OP_B ? 2 : 1};
}

/* Sets start and end of every instruction, rank by rank in issue order. */
static struct timeline *timeline_of(const struct program *p, const double (*t)[2]) {
    struct timeline *tl = NEW(struct timeline, 1);
    tl->start = NEW(double *, p->workers);
    tl->end = NEW(double *, p->workers);
    for (int r = 0; r < p->workers; r++) {
        tl->start[r] = NEW(double, p->rank[r].nins);
        tl->end[r] = NEW(double, p->rank[r].nins);
        for (int i = 0; i < p->rank[r].nins; i++, t++) {
            tl->start[r][i] = (*t)[0];
            tl->end[r][i] = (*t)[1];
            tl->makespan = fmax(tl->makespan, (*t)[1]);
        }
    }
    return tl;
}

static struct report *reported(struct spec *sp, const char *text, const double (*t)[2]) {
    struct costs *costs = costs_of(sp);
    costs->stage = NEW(struct stage, sp->stages);
    for (int s = 0; s < sp->stages; s++)
        for (int k = 0; k < NKINDS; k++)
            costs->stage[s].bytes[k] = k == K_token ? 0 : 6;
    costs->homes = find_homes(costs);
    take_job_costs(costs, NULL);
    struct program *p = read_text("tiny.txt", text);
    return report_of(sp, costs, graph_build(costs), p, timeline_of(p, t));
}

#define HEAD(workers, stages, batches)                                                                                 \
    "pianola 1\nprogram tiny workers " #workers " stages " #stages " batches " #batches "\n"

static struct spec *spec_1f1b(void) {
    struct spec *sp = spec_of(2, 2, 2);
    for (int s = 0; s < 2; s++)
        for (int b = 0; b < 2; b++) {
            job(sp, s, b, OP_F, s);
            job(sp, s, b, OP_B, s);
        }
    return sp;
}

static const char text_1f1b[] = HEAD(2, 2, 2) "rank 0 lane compute\n"
                                              "F 0 0\nF 0 1\nB 0 0\nB 0 1\n"
                                              "rank 0 issue\n0*4\n"
                                              "rank 0 memory 100\nweight(0) 0 10\n"
                                              "rank 1 lane compute\n"
                                              "F 1 0\nB 1 0\nF 1 1\nB 1 1\n"
                                              "rank 1 issue\n0*4\n"
                                              "rank 1 memory 200\nweight(1) 0 10\n";
static const double times_1f1b[][2] = {{0, 1}, {1, 2}, {4, 6}, {7, 9}, {1, 2}, {2, 4}, {4, 5}, {5, 7}};

Test(report, figures_of_1f1b) {
    struct report *r = reported(spec_1f1b(), text_1f1b, times_1f1b);
    cr_assert_str_eq(r->unit, "F");
    cr_assert_eq(r->makespan, 9);
    cr_assert(r->rank[0].busy == 6 && r->rank[0].idle == 3 && r->rank[0].span == 9);
    cr_assert(r->rank[1].busy == 6 && r->rank[1].idle == 3 && r->rank[1].span == 6);
    cr_assert_eq(r->rank[0].peak_activations, 2);
    cr_assert_eq(r->rank[1].peak_activations, 1, "F 1 1 starts when B 1 0 ends: what ends leaves first");
    cr_assert(r->rank[0].peak_bytes == 100 && r->rank[1].peak_bytes == 200);
    cr_assert(r->rank[0].stages_stored == 1 && r->rank[1].stages_stored == 1);
    cr_assert_float_eq(r->bubble, 1.0 / 3, 1e-15);
    cr_assert_float_eq(r->throughput, 2.0 / 3, 1e-15); /* S B / (L W) = 4 / (3 * 2) */
    cr_assert(r->bound.work == 6 && r->bound.path == 6 && r->bound.memory == 6 && r->bound.lower == 6);
    cr_assert_eq(r->gap, 0.5);
    /* Rank 0: 0 to 6 and 1 to 9, at most two; rank 1: 1 to 4 and 4 to 7, one. Alone, 6 and 3 each. */
    cr_assert(r->memory_time.room == 9 * (2 + 1) && r->memory_time.held == 20 && r->memory_time.needed == 18);
    cr_assert(isnan(r->closed_bubble) && !r->memory_time.capped);
}

Test(report, links_lengthen_the_bounds) {
    struct spec *sp = spec_1f1b();
    sp->machine.link = NEW(struct link, 4);
    for (int i = 0; i < 4; i++)
        sp->machine.link[i] = (struct link){0.5, 12}; /* 0.5 + 6 bytes / 12 = 1 per message */
    struct report *r = reported(sp, text_1f1b, times_1f1b);
    cr_assert_eq(r->bound.work, 6);
    cr_assert_eq(r->bound.path, 8);
    cr_assert_eq(r->bound.memory, 8); /* rank 0: two activations of 1 + 1 + 1 + 2 + 1 + 2 each, two at once */
    char *one_by_one = copy_string(text_1f1b);
    memcpy(strstr(one_by_one, "F 0 1\nB 0 0"), "B 0 0\nF 0 1", 11);
    r = reported(sp, one_by_one,
                 (const double[][2]){{0, 1}, {6, 8}, {8, 9}, {14, 16}, {2, 3}, {3, 5}, {10, 11}, {11, 13}});
    cr_assert(r->bound.memory == 16 && r->bound.lower == 16 && r->gap == 0);
}

/* Rank 0's single activation moves to rank 1 when its F ends. */
Test(report, activation_moves_with_a_backward_elsewhere) {
    struct spec *sp = spec_of(2, 1, 2);
    for (int b = 0; b < 2; b++) {
        job(sp, 0, b, OP_F, 0);
        job(sp, 0, b, OP_B, 1);
        sp->job[sp->njobs - 1].cost = 3;
    }
    static const char moving[] = HEAD(2, 1, 2) "rank 0 lane compute\nF 0 0\nF 0 1\n"
                                               "rank 0 issue\n0*2\nrank 0 memory 0\n"
                                               "rank 1 lane compute\nB 0 0\nB 0 1\n"
                                               "rank 1 issue\n0*2\nrank 1 memory 0\n";
    struct report *r = reported(sp, moving, (const double[][2]){{0, 1}, {1, 2}, {1, 3}, {3, 5}});
    cr_assert_eq(r->rank[0].peak_activations, 1);
    cr_assert_eq(r->rank[1].peak_activations, 2);
    cr_assert_eq(r->rank[1].span, 4);
    cr_assert(r->bound.work == 6 && r->bound.path == 4);
    cr_assert_eq(r->bound.memory, 3);      /* rank 0: two of 1, one at once; rank 1: two of 3, two at once */
    sp->job[1].cost = sp->job[3].cost = 0; /* each appears on rank 1 and ends there at once, the first at 1 */
    r = reported(sp, moving, (const double[][2]){{0, 1}, {1, 2}, {1, 1}, {2, 2}});
    cr_assert(r->rank[0].peak_activations == 1 && r->rank[1].peak_activations == 1);
}

Test(report, a_split_backward_frees_at_the_end_of_w) {
    struct spec *sp = spec_of(1, 1, 2);
    for (int b = 0; b < 2; b++) {
        job(sp, 0, b, OP_F, 0);
        job(sp, 0, b, OP_I, 0);
        job(sp, 0, b, OP_W, 0);
    }
    struct report *r = reported(sp,
                                HEAD(1, 1, 2) "rank 0 lane compute\nF 0 0\nI 0 0\nF 0 1\nW 0 0\nI 0 1\nW 0 1\n"
                                              "rank 0 issue\n0*6\nrank 0 memory 0\n",
                                (const double[][2]){{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}});
    cr_assert_eq(r->rank[0].peak_activations, 2);
    cr_assert_eq(r->bound.memory, 3);
    cr_assert(r->bubble == 0 && r->throughput == 1 && r->gap == 0);
}

Test(report, recompute_is_work_but_no_progress) {
    struct spec *sp = spec_of(1, 1, 1);
    job(sp, 0, 0, OP_F, 0);
    job(sp, 0, 0, OP_R, 0);
    job(sp, 0, 0, OP_B, 0);
    struct report *r = reported(sp,
                                HEAD(1, 1, 1) "rank 0 lane compute\nF 0 0\nR 0 0\nB 0 0\n"
                                              "rank 0 issue\n0*3\nrank 0 memory 0\n",
                                (const double[][2]){{0, 1}, {1, 2}, {2, 4}});
    cr_assert_eq(r->rank[0].busy, 4);
    cr_assert_eq(r->bubble, 0);
    cr_assert_eq(r->throughput, 0.75);
    cr_assert(r->bound.path == 4 && r->bound.memory == 4);
}

/* With a script's own dependencies, an activation need only live through its own jobs. */
Test(report, custom_dependencies_weaken_the_memory_bound) {
    struct spec *sp = spec_1f1b();
    const struct graph *g = graph_of(sp);
    sp->pred = g->pred;
    sp->pred_at = g->pred_at;
    struct report *r = reported(sp, text_1f1b, times_1f1b);
    cr_assert_eq(r->bound.path, 6);
    cr_assert_eq(r->bound.memory, 6); /* rank 1: two of 3, one at once; rank 0: two of 3, two at once */
    sp->job[job_at(sp, 0, 0, OP_B)].cost = 11;
    r = reported(sp, text_1f1b, times_1f1b);
    cr_assert_eq(r->bound.memory, 7.5); /* rank 0: 12 and 3 */
}

static const char text_messages[] = HEAD(3, 2, 1) "rank 0 lane compute\nF 0 0\nB 0 0\nF 1 0\nB 1 0\nU 0\n"
                                                  "rank 0 lane send 1\nSEND_F 0 0 to 1 t=act(0,0)\n"
                                                  "SEND_T 0 0 to 1 t=token(0,0)\nSERVE 1#0 to 1 t=weight(1)\n"
                                                  "rank 0 lane recv 1\nRECV_G 0 from 1 t=wgrad(0)#1\n"
                                                  "ADD 0 from 1 src=wgrad(0)#1 dw+=wgrad(0)\n"
                                                  "RECV_W 0 0 from 1 t=wstash(0,0)\n"
                                                  "rank 0 lane group 0,1,2\nALL_REDUCE 0 by ring dw=wgrad(0)\n"
                                                  "rank 0 issue\n0*4 1*3 2*3 3 0\n"
                                                  "rank 0 memory 0\nweight(0) - 4\nweight(1) - 5\nwgrad(0) - 10\n"
                                                  "wgrad(0)#1 - 11\nact(0,0) - 7\ntoken(0,0) - 0\nwstash(0,0) - 40\n"
                                                  "rank 1 lane compute\n"
                                                  "rank 1 lane send 0\nSEND_G 0 to 0 t=wgrad(0)\n"
                                                  "SEND_W 0 0 to 0 t=wstash(0,0)\n"
                                                  "rank 1 lane recv 0\nRECV_F 0 0 from 0 t=act(0,0)\n"
                                                  "RECV_T 0 0 from 0 t=token(0,0)\nFETCH 1#0 from 0 t=weight(1)#0\n"
                                                  "rank 1 lane group 0,1,2\nALL_REDUCE 0 by ring dw=wgrad(0)\n"
                                                  "rank 1 issue\n1*2 2*3 3\n"
                                                  "rank 1 memory 0\nwgrad(0) - 10\nact(0,0) - 7\nweight(1)#0 - 5\n"
                                                  "token(0,0) - 0\nwstash(0,0) - 40\n"
                                                  "rank 2 lane compute\n"
                                                  "rank 2 lane group 0,1,2\nALL_REDUCE 0 by ring dw=wgrad(0)\n"
                                                  "rank 2 issue\n1\n"
                                                  "rank 2 memory 0\nwgrad(0) - 9\n";
static const double times_messages[][2] = {{0, 1}, {1, 3}, {3, 4}, {4, 6},  {1, 1.25},  {1.25, 1.25}, {2, 3},
                                           {6, 7}, {7, 8}, {8, 9}, {9, 10}, {10, 10.5}, {6, 7},       {8, 9},
                                           {1, 2}, {2, 2}, {2, 3}, {9, 10}, {9, 10}};

static struct report *report_messages(void) {
    struct spec *sp = spec_of(3, 2, 1);
    for (int s = 0; s < 2; s++) {
        job(sp, s, 0, OP_F, 0);
        job(sp, s, 0, OP_B, 0);
    }
    return reported(sp, text_messages, times_messages);
}

Test(report, counts_what_is_received) {
    struct report *r = report_messages();
    const struct rank_report *a = &r->rank[0], *b = &r->rank[1], *c = &r->rank[2];
    cr_assert_eq(r->makespan, 10.5, "the last end of anything, not of jobs");
    cr_assert(a->busy == 6 && a->idle == 4.5 && a->span == 6);
    cr_assert(b->busy == 0 && b->idle == 10.5 && b->span == 0 && b->peak_activations == 0);
    cr_assert(a->gradients_received == 1 && a->reductions_received == 1 && a->activations_received == 0);
    cr_assert_eq(a->bytes_received, 40 + 11 + 14); /* a ring of 3 moves 2 * 2/3 of 10 bytes: 13.3 */
    cr_assert(b->activations_received == 1 && b->weights_received == 1 && b->reductions_received == 0);
    cr_assert_eq(b->bytes_received, 7 + 0 + 5 + 14);
    cr_assert_eq(c->bytes_received, 12);
    cr_assert(a->stages_stored == 2 && b->stages_stored == 0 && c->stages_stored == 0);
}

Test(report, units_say_what_times_are) {
    struct spec *sp = spec_1f1b();
    sp->model = NEW(struct model, 1);
    cr_assert_str_eq(reported(sp, text_1f1b, times_1f1b)->unit, "FLOP");
    sp->machine.flops = 1e12;
    cr_assert_str_eq(reported(sp, text_1f1b, times_1f1b)->unit, "s");
}

/* F0 F1 B0 B1 in no time: two activations live in between, and no figure divides by 0. */
Test(report, jobs_that_take_no_time) {
    static const double never[8][2] = {{0}};
    struct report *r = reported(spec_1f1b(), text_1f1b, never);
    cr_assert(r->makespan == 0 && r->bubble == 0 && r->throughput == 0 && r->gap == 0);
    cr_assert(r->rank[0].peak_activations == 2 && r->rank[1].peak_activations == 1);
    struct text t = {0};
    emit_json(&t, r);
    cr_assert(!strstr(t.s, "null") && !strstr(t.s, "nan"));
}

/* The rank computes in 0-4, with an overlapping pair in 2-4, and in 6-9. */
Test(report, what_moves_while_the_rank_computes_is_hidden) {
    static const struct {
        int op;
        double start, end, hidden;
        int by;
    } row[] = {
        {OP_RECV_F, 1, 3, 2, EXPOSED_ACTIVATIONS},   {OP_RECV_F, 3, 7, 2, EXPOSED_ACTIVATIONS},
        {OP_RECV_B, 4, 6, 0, EXPOSED_GRADIENTS},     {OP_ALL_REDUCE, 8, 12, 1, EXPOSED_REDUCTIONS},
        {OP_RELOAD_S, 5, 20, 3, EXPOSED_COPIES},     {OP_ALL_REDUCE_A, 0, 9, 7, EXPOSED_TEAMS},
        {OP_ALL_GATHER, 10, 11, 0, EXPOSED_WEIGHTS}, {OP_FETCH, 2.5, 3, 0.5, EXPOSED_WEIGHTS},
        {OP_SEND_F, 0, 9, 0, EXPOSED_ACTIVATIONS}, /* a SEND brings nothing to its rank */
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        double start[] = {0, 2, 2, 6, row[i].start}, end[] = {2, 4, 4, 9, row[i].end}, hidden[NEXPOSED] = {0};
        struct instr ins[5] = {{.op = OP_F}, {.op = OP_F}, {.op = OP_B}, {.op = OP_B}, {.op = (uint8_t)row[i].op}};
        ins[4].lane = 1;
        hidden_moves(&(struct rank){.ins = ins, .nins = 5}, start, end, hidden);
        for (int by = 0; by < NEXPOSED; by++)
            cr_expect(hidden[by] == (by == row[i].by ? row[i].hidden : 0), "%s of row %zu: %g", exposed_name[by], i,
                      hidden[by]);
    }
}

Test(emit_json, has_the_keys_of_the_schema_in_order) {
    struct report *r = reported(spec_1f1b(), text_1f1b, times_1f1b);
    struct text t = {0};
    r->schedule = "a\"b\\c\n";
    r->workers = 1;
    r->gap = INFINITY; /* JSON has no infinity */
    emit_json(&t, r);
    cr_assert_str_eq(t.s, "{\n"
                          "  \"schema\": 1,\n"
                          "  \"schedule\": \"a\\\"b\\\\c\\n\",\n"
                          "  \"workers\": 1,\n"
                          "  \"stages\": 2,\n"
                          "  \"batches\": 2,\n"
                          "  \"unit\": \"F\",\n"
                          "  \"makespan\": 9,\n"
                          "  \"period\": 0,\n"
                          "  \"period_batches\": 2,\n"
                          "  \"steady_bubble\": 0,\n"
                          "  \"staleness\": [0, 0],\n"
                          "  \"versions\": [1, 1],\n"
                          "  \"mixed_versions\": 0,\n"
                          "  \"lower_bound\": 6,\n"
                          "  \"bound_work\": 6,\n"
                          "  \"bound_path\": 6,\n"
                          "  \"bound_memory\": 6,\n"
                          "  \"gap\": null,\n"
                          "  \"memory_room\": 27,\n"
                          "  \"memory_held\": 20,\n"
                          "  \"memory_needed\": 18,\n"
                          "  \"bubble\": 0.33333333333333337,\n"
                          "  \"throughput\": 0.6666666666666666,\n"
                          "  \"ranks\": [\n"
                          "    {\n"
                          "      \"rank\": 0,\n"
                          "      \"busy\": 6,\n"
                          "      \"idle\": 3,\n"
                          "      \"span\": 9,\n"
                          "      \"peak_activations\": 2,\n"
                          "      \"peak_bytes\": 100,\n"
                          "      \"least_bytes\": 0,\n"
                          "      \"host_bytes\": 0,\n"
                          "      \"at_peak\": { \"weights\": 10, \"gradients\": 0, \"optimizer\": 0, "
                          "\"fetched\": 0, \"act\": 0, \"grad\": 0, \"stash\": 0, \"work\": 0, \"gaps\": 90 },\n"
                          "      \"activations_received\": 0,\n"
                          "      \"gradients_received\": 0,\n"
                          "      \"weights_received\": 0,\n"
                          "      \"reductions_received\": 0,\n"
                          "      \"gathers\": 0,\n"
                          "      \"gathers_apart\": 0,\n"
                          "      \"reductions\": 0,\n"
                          "      \"bytes_received\": 0,\n"
                          "      \"bytes_sent\": 0,\n"
                          "      \"bytes_offloaded\": 0,\n"
                          "      \"bytes_reloaded\": 0,\n"
                          "      \"exposed\": { \"activations\": 0, \"gradients\": 0, \"weights\": 0, "
                          "\"reductions\": 0, \"copies\": 0, \"teams\": 0 },\n"
                          "      \"hidden\": { \"activations\": 0, \"gradients\": 0, \"weights\": 0, "
                          "\"reductions\": 0, \"copies\": 0, \"teams\": 0 },\n"
                          "      \"stages_stored\": 1\n"
                          "    }\n"
                          "  ]\n"
                          "}\n");
}

Test(emit_tsv, is_sorted_and_leaves_empty_what_does_not_apply) {
    struct program *p = read_text("tiny.txt", text_messages);
    struct text t = {0};
    emit_tsv(&t, p, timeline_of(p, times_messages), "s");
    cr_assert_str_eq(t.s, "rank\tlane\tstart\tend\top\tstage\tbatch\tpeer\tbytes\tunit\n"
                          "0\tcompute\t0\t1\tF\t0\t0\t\t\ts\n"
                          "0\tcompute\t1\t3\tB\t0\t0\t\t\ts\n"
                          "0\tcompute\t3\t4\tF\t1\t0\t\t\ts\n"
                          "0\tcompute\t4\t6\tB\t1\t0\t\t\ts\n"
                          "0\tcompute\t10\t10.5\tU\t0\t\t\t\ts\n"
                          "0\tsend 1\t1\t1.25\tSEND_F\t0\t0\t1\t7\ts\n"
                          "0\tsend 1\t1.25\t1.25\tSEND_T\t0\t0\t1\t0\ts\n"
                          "0\tsend 1\t2\t3\tSERVE\t1\t\t1\t5\ts\n"
                          "0\trecv 1\t6\t7\tRECV_G\t0\t\t1\t11\ts\n"
                          "0\trecv 1\t7\t8\tADD\t0\t\t1\t\ts\n"
                          "0\trecv 1\t8\t9\tRECV_W\t0\t0\t1\t40\ts\n"
                          "0\tgroup 0,1,2\t9\t10\tALL_REDUCE\t0\t\t\t10\ts\n"
                          "1\tsend 0\t6\t7\tSEND_G\t0\t\t0\t10\ts\n"
                          "1\tsend 0\t8\t9\tSEND_W\t0\t0\t0\t40\ts\n"
                          "1\trecv 0\t1\t2\tRECV_F\t0\t0\t0\t7\ts\n"
                          "1\trecv 0\t2\t2\tRECV_T\t0\t0\t0\t0\ts\n"
                          "1\trecv 0\t2\t3\tFETCH\t1\t\t0\t5\ts\n"
                          "1\tgroup 0,1,2\t9\t10\tALL_REDUCE\t0\t\t\t10\ts\n"
                          "2\tgroup 0,1,2\t9\t10\tALL_REDUCE\t0\t\t\t9\ts\n");
}
