/* Breaks places of instructions: in their lane, in issue order, on their rank; and of messages, at all their ends. */
#include "mutate_parts.h"
#include <string.h>

const char *mutate_order(struct place *m, enum mutation how) {
    struct rank *k = m->k;
    int j;
    switch (how) {
    case MUT_DELETE: remove_at(k, m->i); return "";
    case MUT_DUPLICATE:
        j = m->i + 1 + (draw(m, 2) ? draw(m, k->nins - m->i) : 0);
        insert_at(k, j, *m->x);
        return format("again at %d", j);
    case MUT_SWAP_LANE:
    case MUT_SWAP_FAR:
        j = how == MUT_SWAP_FAR ? draw(m, k->nins) : m->i + 1;
        while (j < k->nins && (j <= m->i || k->ins[j].lane != m->x->lane))
            j++;
        if (j == k->nins)
            return NULL;
        exchange(k, m->i, j);
        return format("with %s", label_of(k, m->i));
    case MUT_SWAP_ISSUE:
        if (m->i + 1 == k->nins || k->ins[m->i + 1].lane == m->x->lane)
            return NULL;
        exchange(k, m->i, m->i + 1);
        return "with the next in issue order";
    default:
        j = draw(m, k->nins);
        if (j == m->i)
            return NULL;
        move_to(k, m->i, j);
        return format("to %d", j);
    }
}

const char *mutate_rank(struct place *m, enum mutation how) {
    (void)how;
    int q = draw(m, m->p->workers), kind = m->k->lane[m->x->lane].kind, lane = 0;
    if (q == m->r || m->x->peer == q)
        return NULL;
    struct rank *to = &m->p->rank[q];
    struct instr x = *m->x;
    int32_t *freed = NEW(int32_t, x.nfree);
    int group = m->k->lane[x.lane].group;
    if (group >= 0) {
        while (lane < to->nlanes && (to->lane[lane].kind != kind || to->lane[lane].group != group))
            lane++;
        if (lane == to->nlanes)
            return NULL;
    } else if (kind != LANE_COMPUTE)
        lane = lane_to(to, kind, m->k->lane[x.lane].peer);
    x.lane = (uint16_t)lane;
    x.nwait = 0;
    struct arg *arg = NEW(struct arg, to->nargs + x.narg);
    memcpy(arg, to->arg, sizeof *arg * to->nargs);
    for (int a = 0; a < x.narg; a++) {
        struct arg old = m->k->arg[x.arg + (uint32_t)a];
        arg[to->nargs + (size_t)a] = (struct arg){old.role, old.piece, old.last, buffer_like(to, &m->k->buf[old.buf])};
    }
    to->arg = arg;
    x.arg = (uint32_t)to->nargs;
    to->nargs += x.narg;
    for (int f = 0; f < x.nfree; f++)
        freed[f] = buffer_like(to, &m->k->buf[m->k->freed[x.free + (uint32_t)f]]);
    set_frees(to, &x, freed, x.nfree);
    remove_at(m->k, m->i);
    int at = draw(m, to->nins + 1);
    insert_at(to, at, x);
    return format("to rank %d at %d", q, at);
}

/* ---- messages, at all ends ---- */

/* Returns the next instruction of the same edge or group after instruction i, or -1. */
static int next_of_edge(const struct rank *k, int i) {
    const struct instr *x = &k->ins[i];
    for (int j = i + 1; j < k->nins; j++)
        if (is_message(k->ins[j].op) && op_lane[k->ins[j].op] == op_lane[x->op] && k->ins[j].peer == x->peer &&
            k->ins[j].lane == x->lane)
            return j;
    return -1;
}

static int end_on(const struct rank *k, int32_t msg) {
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].msg == msg)
            return i;
    return -1;
}

/* Renames a message at all ends: another microbatch or stage, or another operation. */
static void rename_ends(struct place *m, int32_t msg, int by) {
    for (int r = 0; r < m->p->workers; r++)
        for (struct instr *x = m->p->rank[r].ins; x < m->p->rank[r].ins + m->p->rank[r].nins; x++) {
            if (x->msg != msg)
                continue;
            if (by == 0 && x->batch >= 0)
                x->batch = (x->batch + 1) % m->p->batches;
            else if (by == 1 && x->op <= OP_RECV_T && x->op >= OP_SEND_F)
                x->op = (uint8_t)(OP_SEND_F + (x->op - OP_SEND_F + 2) % (OP_RECV_T + 1 - OP_SEND_F));
            else
                x->stage = (x->stage + 1) % m->p->stages;
        }
}

const char *mutate_edge(struct place *m, enum mutation how) {
    int32_t msg = m->x->msg, other;
    int j = is_message(m->x->op) && msg >= 0 ? next_of_edge(m->k, m->i) : -1;
    bool swaps = how == MUT_SWAP_EDGE || how == MUT_SWAP_END;
    if (msg < 0 || (swaps && j < 0))
        return NULL;
    if (how == MUT_RENAME_MESSAGE) {
        rename_ends(m, msg, draw(m, 3));
        return label_of(m->k, m->i);
    }
    other = j >= 0 ? m->k->ins[j].msg : -1;
    const char *with = j >= 0 ? label_of(m->k, j) : "";
    for (int r = 0; r < m->p->workers; r++) {
        struct rank *k = &m->p->rank[r];
        int a = end_on(k, msg), b = end_on(k, other);
        if (a < 0 || (how == MUT_SWAP_END && r != m->r) || (swaps && b < 0))
            continue;
        if (swaps)
            exchange(k, a, b);
        else if (how == MUT_DELETE_MESSAGE)
            remove_at(k, a);
        else
            insert_at(k, a + 1, k->ins[a]);
    }
    return swaps ? format("with %s", with) : "at all ends";
}
