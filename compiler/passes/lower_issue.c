/* The building blocks of lowering: buffers that open and close, instructions with operands, messages and lanes. */
#include "lower.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int32_t new_buf(struct build *L, int r, int kind, int s, int b, int inst, int64_t bytes, int uses) {
    struct rank *k = &L->p->rank[r];
    struct caps *c = &L->rank[r];
    GROW(k->buf, c->buf, (size_t)k->nbufs + 1);
    GROW(c->left, c->uses, (size_t)k->nbufs + 1);
    k->buf[k->nbufs] = (struct buf){(uint8_t)kind, s, b, inst, -1, bytes, -1};
    c->left[k->nbufs] = uses;
    return k->nbufs++;
}

void push_event(struct build *L, int r, int32_t e) {
    struct rank *k = &L->p->rank[r];
    GROW(k->event, L->rank[r].event, k->nevents + 1);
    k->event[k->nevents++] = e;
}

/* A buffer that lives from here to its last use. A stash whose I runs here makes room for what I adds. */
int32_t open_buf(struct build *L, int r, int kind, int s, int b, int inst, int uses) {
    int32_t x = new_buf(L, r, kind, s, b, inst, L->st[s].bytes[kind], uses);
    int32_t split = kind == K_stash ? job_at(L->sp, s, b, OP_I) : -1;
    if (split >= 0 && L->sp->job[split].rank == r) {
        int32_t w = new_buf(L, r, K_wstash, s, b, -1, L->st[s].bytes[K_wstash], 1);
        L->p->rank[r].buf[x].grows = w;
    }
    push_event(L, r, x);
    return x;
}

void close_until(struct build *L, double t) {
    while (L->closings.n > 0 && L->closings.a[0].t <= t) {
        struct closing x = closings_pop(&L->closings);
        push_event(L, x.rank, ~x.buf);
    }
}

void add_lane(struct build *L, int r, struct lane lane) {
    struct rank *k = &L->p->rank[r];
    GROW(k->lane, L->rank[r].lanes, (size_t)k->nlanes + 1);
    k->lane[k->nlanes++] = lane;
}

static int lane_of(struct build *L, int r, int op, int peer) {
    if (op_lane[op] == LANE_COMPUTE)
        return 0;
    enum lanes_per per = L->sp->lanes;
    int place = per == PER_RANK ? 0 : per == PER_PEER || op_lane[op] == LANE_SEND ? peer : L->sp->workers + peer;
    int16_t *at = &L->rank[r].lane[place];
    if (*at < 0) {
        static const uint8_t coarse[] = {[PER_PEER] = LANE_PEER, [PER_RANK] = LANE_ALL};
        *at = (int16_t)L->p->rank[r].nlanes;
        add_lane(L, r, (struct lane){per == PER_EDGE ? op_lane[op] : coarse[per], per == PER_RANK ? -1 : peer, -1});
    }
    return *at;
}

struct instr *issue(struct build *L, int r, int op, int s, int b, int peer, int inst) {
    struct rank *k = &L->p->rank[r];
    GROW(k->ins, L->rank[r].ins, (size_t)k->nins + 1);
    struct instr *i = &k->ins[k->nins++];
    *i = (struct instr){.op = (uint8_t)op, .stage = s, .batch = b, .peer = peer, .inst = inst, .msg = -1};
    i->arg = (uint32_t)k->nargs;
    i->free = (uint32_t)k->nfrees;
    i->lane = is_group(op) ? 0 : (uint16_t)lane_of(L, r, op, peer);
    return i;
}

/* On the group's lane, which it adds where there is none yet. */
void issue_collective(struct build *L, int r, int op, int s, int g) {
    const struct rank *k = &L->p->rank[r];
    int lane = 0;
    while (lane < k->nlanes && !(k->lane[lane].kind == LANE_GROUP && k->lane[lane].group == g))
        lane++;
    if (lane == k->nlanes)
        add_lane(L, r, (struct lane){LANE_GROUP, -1, g});
    issue(L, r, op, s, -1, -1, -1)->lane = (uint16_t)lane;
}

void add_operand(struct build *L, int r, int role, int32_t buf) {
    struct rank *k = &L->p->rank[r];
    GROW(k->arg, L->rank[r].arg, k->nargs + 1);
    k->arg[k->nargs++] = (struct arg){(uint8_t)role, buf};
    k->ins[k->nins - 1].narg++;
}

/* The newest instruction uses buf once; when that is the last use, it frees it. Returns whether it does. */
bool use_up(struct build *L, int r, int32_t buf) {
    struct rank *k = &L->p->rank[r];
    struct caps *c = &L->rank[r];
    if (--c->left[buf] > 0)
        return false;
    GROW(k->freed, c->freed, k->nfrees + 1);
    k->freed[k->nfrees++] = buf;
    k->ins[k->nins - 1].nfree++;
    return true;
}

/* What sends a tensor of this kind. The input that a recompute starts from goes in place of the stash. */
static int send_of(int kind) {
    int op = 0;
    while (!is_send(op) || op_row(op)->tensor != (kind == K_input ? K_stash : kind))
        op++;
    return op;
}

/* A SEND of buf and its RECV; returns the received buffer, used `uses` times. Frees buf at its last use. */
int32_t send_message(struct build *L, double t, int from, int to, int32_t buf, int inst, int uses) {
    struct buf x = L->p->rank[from].buf[buf];
    bool weights = x.kind == K_weight, part = x.kind == K_wgrad;
    int send = send_of(x.kind), name = part ? -1 : inst;
    issue(L, from, send, x.stage, x.batch, to, name);
    add_operand(L, from, ROLE_t, buf);
    if (!weights && use_up(L, from, buf)) {
        struct link l = link_of(L->sp, from, to);
        if (isinf(l.bandwidth))
            push_event(L, from, ~buf);
        else
            closings_push(&L->closings, (struct closing){t + (double)x.bytes / l.bandwidth, from, buf});
    }
    int32_t y = open_buf(L, to, x.kind, x.stage, x.batch, part ? from : inst, uses);
    issue(L, to, op_row(send)->partner, x.stage, x.batch, from, name);
    add_operand(L, to, ROLE_t, y);
    return y;
}

/* Lanes were numbered as they appeared; in the program they are ordered by kind, peer and group. */
void order_lanes(struct rank *k) {
    struct lane *old = NEW(struct lane, k->nlanes);
    uint16_t *now = NEW(uint16_t, k->nlanes);
    memcpy(old, k->lane, sizeof *old * (size_t)k->nlanes);
    qsort(k->lane, (size_t)k->nlanes, sizeof *k->lane, compare_lanes);
    for (int i = 0; i < k->nlanes; i++) {
        struct lane *at = bsearch(&old[i], k->lane, (size_t)k->nlanes, sizeof *k->lane, compare_lanes);
        now[i] = (uint16_t)(at - k->lane);
    }
    for (int i = 0; i < k->nins; i++)
        k->ins[i].lane = now[k->ins[i].lane];
}
