/* Included by a rank's own program, rank<k>.cu, whose table uses the words of streams.txt and whose main replays it.
 * Valid as C and as C++ (nvcc).
 *
 * A buffer is its offset and its bytes: #define act_1_3 4096, 512. An instruction is a line of the table,
 *
 *     I(F, 1, 3, compute, alone, w(weight_1) x(act_0_3) y(act_1_3), after(RECV_F_0_3_from_0))
 *
 * whose name, made of operation, stage, microbatch and peer, has the same place in the enum above the table. Its words
 * are macros of words.h, which is included before and after the table. Define RT_OPERANDS and RT_WAITS, the most that
 * any line has, before including this file. */
#ifndef PIANOLA_RANK_H
#define PIANOLA_RANK_H
#ifdef __cplusplus
extern "C" {
#endif
#include "rt.h"
#ifdef __cplusplus
}
#endif

struct rt_operand {
    int32_t role;       /* enum role + 1; 0 ends the list */
    int64_t off, bytes; /* in one of the rank's arenas */
    int64_t before;     /* bytes of its buffer that lie before it, which is a piece */
};
struct rt_line {
    int32_t op, stage, batch, lane, peer, msg, root, from, to, sweep;
    struct rt_operand operand[RT_OPERANDS + 1];
    int32_t wait[RT_WAITS + 1]; /* names of instructions: their places + 1; 0 ends the list */
};

/* Converts the lines to instructions once, at startup, then hands over to the runtime. */
static inline int rt_start(int argc, char **argv, const struct rt_program *self, const struct rt_line *line, int32_t n,
                           struct rt_instr *ins, int32_t *wait, int64_t *more) {
    int32_t waits = 0;
    for (int32_t i = 0; i < n; i++) {
        struct rt_instr *x = &ins[i];
        x->op = (uint8_t)line[i].op;
        x->lane = (uint16_t)line[i].lane;
        x->stage = line[i].stage;
        x->batch = line[i].batch;
        x->peer = line[i].peer;
        x->msg = line[i].msg;
        x->root = line[i].root;
        x->from = line[i].from;
        x->sweep = (uint8_t)line[i].sweep;
        x->to = line[i].to > 0 || !is_job(x->op) ? line[i].to : self->stage[x->stage].nlayers;
        x->wait = waits;
        x->more = i > 0 ? x[-1].more + x[-1].nmore + x[-1].nkv : 0;
        for (int r = 0; r < NROLES; r++)
            x->at[r] = -1;
        for (int a = 0; line[i].operand[a].role; a++) {
            int role = line[i].operand[a].role;
            x->first = x->first || role == -(ROLE_dw + 1) || role == -(ROLE_norm + 1);
            x->vfirst = x->vfirst || role == -(ROLE_dv + 1);
            x->ufirst = x->ufirst || role == -(ROLE_du + 1);
            if (a == 0 || line[i].operand[a].bytes < x->bytes)
                x->bytes = line[i].operand[a].bytes;
            if ((role == ROLE_x + 1 || role == ROLE_dy + 1) && x->at[role - 1] >= 0)
                more[x->more + x->nmore++] = line[i].operand[a].off;
            else if (role != ROLE_kv + 1)
                x->at[(role < 0 ? -role : role) - 1] =
                    line[i].operand[a].off - (is_job(x->op) ? line[i].operand[a].before : 0);
        }
        for (int a = 0; line[i].operand[a].role; a++)
            if (line[i].operand[a].role == ROLE_kv + 1)
                more[x->more + x->nmore + x->nkv++] = line[i].operand[a].off;
        for (int a = 0; line[i].wait[a]; a++, waits++) {
            wait[waits] = line[i].wait[a] - 1;
            ins[wait[waits]].recorded = true;
        }
        x->nwait = waits - x->wait;
    }
    struct rt_rank rank = *self->rank;
    struct rt_program program = *self;
    rank.ins = ins;
    rank.wait = wait;
    rank.more = more;
    rank.nins = n;
    program.rank = &rank;
    return rank_main(argc, argv, &program);
}
#define RT_MAIN(argc, argv, self, stream)                                                                              \
    do {                                                                                                               \
        enum { N = sizeof stream / sizeof *stream - 1 };                                                               \
        static struct rt_instr ins[N + 1];                                                                             \
        static int32_t waits[N * RT_WAITS + 1];                                                                        \
        static int64_t more[N * RT_OPERANDS + 1];                                                                      \
        return rt_start(argc, argv, self, stream, N, ins, waits, more);                                                \
    } while (0)
#endif
