/* The building blocks of lowering: buffers that open and close, instructions with operands, messages and lanes. */
#include "lower.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int32_t new_buf(struct build *build, int r, struct buf buf, int uses) {
    struct rank *k = &build->p->rank[r];
    struct caps *caps = &build->rank[r];
    GROW(k->buf, caps->buf, (size_t)k->nbufs + 1);
    GROW(caps->left, caps->uses, (size_t)k->nbufs + 1);
    buf.grows = buf.off = -1;
    k->buf[k->nbufs] = buf;
    caps->left[k->nbufs] = uses;
    return k->nbufs++;
}

void push_event(struct build *build, int r, int32_t e) {
    struct rank *k = &build->p->rank[r];
    struct caps *caps = &build->rank[r];
    GROW(k->event, caps->event, k->nevents + 1);
    k->event[k->nevents++] = e;
    const struct buf *b = &k->buf[e >= 0 ? e : ~e];
    int64_t bytes = grown_bytes(k, b);
    if (b->kind == K_weight || memory_of(b) == MEMORY_HOST)
        return;
    caps->now += (e >= 0 ? 1 : -1) * mem_room(build->sp, bytes);
    caps->most = caps->now > caps->most ? caps->now : caps->most;
}

/* Opens a buffer that lives from now to its last use. A stash whose I runs on this rank includes room for what I
 * adds. */
int32_t open_buf(struct build *build, int r, int kind, int s, int b, int inst, int uses) {
    const int64_t *bytes = stage_at(build->costs, s, b)->bytes;
    struct buf buf = {.kind = (uint8_t)kind, .stage = s, .batch = b, .inst = inst, .bytes = bytes[kind]};
    int32_t x = new_buf(build, r, buf, uses);
    int32_t split = kind == K_stash || kind == K_rstash ? job_at(build->sp, s, b, OP_I) : -1;
    bool stays =
        kind == K_rstash || !build->choices->offload || !build->choices->offload[(int64_t)s * build->sp->batches + b];
    if (split >= 0 && build->costs->job[split].rank == r && (stays || job_at(build->sp, s, b, OP_R) >= 0)) {
        buf = (struct buf){.kind = K_wstash, .stage = s, .batch = b, .inst = -1, .bytes = bytes[K_wstash]};
        int32_t w = new_buf(build, r, buf, 1);
        build->p->rank[r].buf[x].grows = w;
    }
    push_event(build, r, x);
    return x;
}

void close_until(struct build *build, double t) {
    while (build->clock.closings.n > 0 && build->clock.closings.a[0].t <= t) {
        struct closing closing = closings_pop(&build->clock.closings);
        push_event(build, closing.rank, ~closing.buf);
    }
}

void add_lane(struct build *build, int r, struct lane lane) {
    struct rank *k = &build->p->rank[r];
    GROW(k->lane, build->rank[r].lanes, (size_t)k->nlanes + 1);
    k->lane[k->nlanes++] = lane;
}

static int lane_of(struct build *build, int r, int op, int peer) {
    if (op_lane[op] == LANE_COMPUTE)
        return 0;
    enum lanes_per per = build->choices->lanes;
    int place = per == PER_RANK ? 0 : per == PER_PEER || op_lane[op] == LANE_SEND ? peer : build->sp->workers + peer;
    bool edge = per == PER_EDGE || is_copy(op);
    if (is_copy(op))
        place = 2 * build->sp->workers + (op_lane[op] == LANE_RELOAD);
    int16_t *at = &build->rank[r].lane[place];
    if (*at < 0) {
        static const uint8_t coarse[] = {[PER_PEER] = LANE_PEER, [PER_RANK] = LANE_ALL};
        *at = (int16_t)build->p->rank[r].nlanes;
        add_lane(build, r, (struct lane){edge ? op_lane[op] : coarse[per], per == PER_RANK ? -1 : peer, -1});
    }
    return *at;
}

struct instr *issue(struct build *build, int r, int op, int s, int b, int peer, int inst) {
    struct rank *k = &build->p->rank[r];
    GROW(k->ins, build->rank[r].ins, (size_t)k->nins + 1);
    struct instr *x = &k->ins[k->nins++];
    *x = (struct instr){.op = (uint8_t)op, .stage = s, .batch = b, .peer = peer, .inst = inst, .msg = -1};
    x->arg = (uint32_t)k->nargs;
    x->free = (uint32_t)k->nfrees;
    x->lane = is_group(op) ? 0 : (uint16_t)lane_of(build, r, op, peer);
    return x;
}

/* Returns the map's slot of the group of these ranks, or the slot where it belongs. */
static int32_t *find_group(const struct build *build, const int32_t *rank, int n) {
    uint64_t hash = 0;
    for (int i = 0; i < n; i++)
        hash = hash_add(hash, rank[i]);
    uint32_t at = map_start(&build->groups.map, hash);
    for (int32_t g; (g = build->groups.map.slot[at] - 1) >= 0; at = map_next(&build->groups.map, at))
        if (build->p->group[g].n == n && !memcmp(build->p->group[g].rank, rank, sizeof *rank * (size_t)n))
            break;
    return &build->groups.map.slot[at];
}

int intern_group(struct build *build, const int32_t *rank, int n) {
    struct program *p = build->p;
    if (p->ngroups == build->groups.room) { /* doubles the room, and inserts all groups again */
        build->groups.room = 2 * p->ngroups + 16;
        build->groups.map = map_new((size_t)build->groups.room);
        for (int g = 0; g < p->ngroups; g++)
            *find_group(build, p->group[g].rank, p->group[g].n) = g + 1;
        GROW(p->group, build->groups.cap, (size_t)build->groups.room);
    }
    int32_t *slot = find_group(build, rank, n);
    if (*slot > 0)
        return *slot - 1;
    int32_t *ranks = NEW(int32_t, n);
    memcpy(ranks, rank, sizeof *ranks * (size_t)n);
    p->group[p->ngroups] = (struct group){n, ranks};
    return (*slot = ++p->ngroups) - 1;
}

/* Issues on the group's lane, which is added if there is none yet. */
struct instr *issue_collective(struct build *build, int r, int op, int s, int inst, int root, int g) {
    const struct rank *k = &build->p->rank[r];
    int lane = 0;
    while (lane < k->nlanes && !(k->lane[lane].kind == op_lane[op] && k->lane[lane].group == g))
        lane++;
    if (lane == k->nlanes)
        add_lane(build, r, (struct lane){op_lane[op], -1, g});
    struct instr *x = issue(build, r, op, s, -1, root, inst);
    x->lane = (uint16_t)lane;
    return x;
}

/* Returns the collective's algorithm and time. Caches them, because members ask one after the other and get the same
 * answer. */
static const struct travel *travel_of(struct build *build, int r, const struct instr *x) {
    const struct rank *k = &build->p->rank[r];
    struct travel *travel = &build->groups.travel;
    int32_t group = k->lane[x->lane].group;
    int64_t whole = whole_bytes(k, x);
    if (travel->op == x->op && travel->group == group && travel->whole == whole)
        return travel;
    const struct group *g = &build->p->group[group];
    *travel = (struct travel){x->op, group, whole, cheaper_algorithm(build->sp, x->op, g, whole), 0};
    travel->time = collective_time(build->sp, x->op, travel->algorithm, g, whole);
    return travel;
}

void set_algorithm(struct build *build, int r) {
    struct rank *k = &build->p->rank[r];
    struct instr *x = &k->ins[k->nins - 1];
    x->algorithm = (uint8_t)travel_of(build, r, x)->algorithm;
}

void add_piece(struct build *build, int r, int role, int32_t buf, int piece, int pieces) {
    struct rank *k = &build->p->rank[r];
    GROW(k->arg, build->rank[r].arg, k->nargs + 1);
    k->arg[k->nargs++] =
        (struct arg){(uint32_t)role, (uint32_t)piece & MOST_PIECE, (uint32_t)(pieces - 1) & MOST_PIECE, buf};
    k->ins[k->nins - 1].narg++;
}

void add_operand(struct build *build, int r, int role, int32_t buf) { add_piece(build, r, role, buf, 0, 1); }

/* Counts a use of buf by the newest instruction, which frees buf if this is the last use. Returns whether it does. */
bool use_up(struct build *build, int r, int32_t buf) {
    struct rank *k = &build->p->rank[r];
    struct caps *caps = &build->rank[r];
    if (--caps->left[buf] > 0)
        return false;
    GROW(k->freed, caps->freed, k->nfrees + 1);
    k->freed[k->nfrees++] = buf;
    k->ins[k->nins - 1].nfree++;
    return true;
}

/* Returns the instruction that sends a tensor of this kind. The input of a recompute is sent in place of the stash. */
static int send_of(int kind) {
    int op = 0;
    while (!is_send(op) || op_row(op)->tensor != (kind == K_input ? K_stash : kind))
        op++;
    return op;
}

static double time_of(struct build *build, int r, const struct instr *x) {
    const struct rank *k = &build->p->rank[r];
    if (is_group(x->op))
        return travel_of(build, r, x)->time;
    if (is_copy(x->op))
        return host_time(build->sp, r, moved_bytes(k, x));
    struct link link = link_of(build->sp, r, x->peer);
    return isinf(link.bandwidth) ? 0 : (double)moved_bytes(k, x) / link.bandwidth;
}

void end_shared_use(struct build *build, double t, double read, int r, int32_t buf) {
    const struct rank *k = &build->p->rank[r];
    const struct instr *x = &k->ins[k->nins - 1];
    if (!use_up(build, r, buf))
        return;
    double took = is_message(x->op) || is_copy(x->op) ? time_of(build, r, x) : 0;
    if (took > 0 || read > t)
        closings_push(&build->clock.closings, (struct closing){fmax(t + took, read), r, buf});
    else
        push_event(build, r, ~buf);
}

int32_t send_message(struct build *build, double t, int from, int to, int32_t buf, int inst, int uses) {
    struct buf b = build->p->rank[from].buf[buf];
    int send = send_of(b.kind);
    issue(build, from, send, b.stage, b.batch, to, inst);
    add_operand(build, from, ROLE_t, buf);
    end_use(build, t, from, buf);
    int32_t y = open_buf(build, to, b.kind, b.stage, b.batch, inst, uses);
    issue(build, to, op_row(send)->partner, b.stage, b.batch, from, inst);
    add_operand(build, to, ROLE_t, y);
    return y;
}

/* Renumbers lanes, which were numbered as they appeared, by kind, peer and group. */
void order_lanes(struct rank *k) {
    struct lane *old = NEW(struct lane, k->nlanes);
    uint16_t *now = NEW(uint16_t, k->nlanes);
    memcpy(old, k->lane, sizeof *old * (size_t)k->nlanes);
    sort(k->lane, (size_t)k->nlanes, sizeof *k->lane, compare_lanes);
    for (int i = 0; i < k->nlanes; i++) {
        struct lane *at = bsearch(&old[i], k->lane, (size_t)k->nlanes, sizeof *k->lane, compare_lanes);
        now[i] = (uint16_t)(at - k->lane);
    }
    for (int i = 0; i < k->nins; i++)
        k->ins[i].lane = now[k->ins[i].lane];
}
