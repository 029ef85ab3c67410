/* Asserts the assumptions that the replay core, the devices and the transports make about a rank's streams. The
 * compiler has proved more than this, but a rank's program may come from a file that was built long ago, or by another
 * compiler. */
#include "replay.h"
#include <assert.h>

static void expect_operands(const struct rt_rank *k, const struct rt_instr *x) {
    for (int role = 0; role < NROLES; role++) {
        const struct rt_buffer *b = operand_in(x, role);
        if (!b)
            continue;
        assert(b->off >= 0 && b->bytes >= 0);
        assert(b->off + b->bytes <= (on_host(x->op, role) ? k->host : k->arena));
        assert(b->off % (int64_t)sizeof(float) == 0 || b->bytes == 0);
        assert(b->bytes >= x->bytes); /* the smallest operand limits what is moved, added or reduced */
    }
    for (const struct rt_buffer *const *b = x->more; b && *b; b++)
        assert((*b)->off >= 0 && (*b)->off + (*b)->bytes <= k->arena);
    for (const struct rt_buffer *const *b = x->kv; b && *b; b++)
        assert((*b)->off >= 0 && (*b)->off + (*b)->bytes <= k->arena);
}

/* Asserts that a message has a peer and a tensor, and that a collective has a group with this rank, and a root if it
 * needs one. */
static void expect_message(const struct rt_program *p, const struct rt_rank *k, const struct rt_instr *x) {
    assert(x->msg >= 0 && x->msg < p->nmsgs && x->bytes >= 0);
    if (!is_group(x->op)) {
        assert(x->peer >= 0 && x->peer < p->workers && x->peer != k->number);
        assert(x->at.t || x->bytes == 0);
        return;
    }
    assert(x->group >= 0 && x->group < group_count(p->groups));
    const struct rt_group group = group_of(p->groups, x->group, k->number);
    assert(group.n > 1 && group.member[group.me] == k->number);
    assert(motion_of(x->op) != OP_ALL_TO_ALL_A || x->bytes % group.n == 0);
    for (int i = 0; has_root(x->op) && group.member[i] != x->root; i++)
        assert(i + 1 < group.n);
    if (motion_of(x->op) == OP_ALL_GATHER)
        assert(x->bytes == 0 || (x->at.src && result_at(x) >= 0));
    else if (motion_of(x->op) == OP_ALL_REDUCE)
        assert(x->bytes == 0 || result_at(x) >= 0);
}

static void expect_work(const struct rt_program *p, const struct rt_rank *k, const struct rt_instr *x) {
    if (is_job(x->op)) {
        assert(x->stage >= 0 && x->stage < p->stages && x->batch >= 0 && x->batch < written_batches(p));
        assert(x->from >= 0 && x->from <= job_end(p, x) && job_end(p, x) <= p->stage[x->stage].nlayers);
    } else if (is_copy(x->op))
        assert(x->at.src && x->at.t);
    else if (x->op == OP_U) {
        int h = 0;
        while (h < k->nhomes && k->home[h].stage != x->stage)
            h++;
        assert(h < k->nhomes && x->at.w && x->at.dw); /* a rank updates only sets whose home it is */
    } else if (x->op == OP_ADD || x->op == OP_TAKE)
        assert(x->at.src && x->at.dw);
}

/* Asserts that lanes are in issue order, and that an instruction waits only for earlier instructions on other lanes in
 * its section. So the first instruction of the rank that has not run never waits for another of the same rank. */
static void expect_lanes(const struct rt_rank *k) {
    assert(k->lane_at[0] == 0 && k->lane_at[k->nlanes] == k->nins);
    for (int l = 0; l < k->nlanes; l++)
        for (int32_t c = k->lane_at[l]; c < k->lane_at[l + 1]; c++) {
            const struct rt_instr *x = &k->ins[k->lane_ins[c]];
            assert(x->lane == l && (c == k->lane_at[l] || k->lane_ins[c] > k->lane_ins[c - 1]));
        }
    for (int32_t i = 0; i < k->nins; i++)
        for (int32_t n = 0, before; (before = wait_of(k, &k->ins[i], n)) >= 0; n++) {
            assert(before < i && k->ins[before].lane != k->ins[i].lane);
            assert((before >= k->begin) == (i >= k->begin) && (before >= k->end) == (i >= k->end));
        }
}

static void expect_homes(const struct rt_program *p, const struct rt_rank *k) {
    const int64_t element = precision_bytes(p->model->precision);
    for (const struct rt_home *h = k->home; h < k->home + k->nhomes; h++) {
        assert(h->stage >= 0 && h->stage < p->sets && h->first >= 0 && h->count >= 0);
        assert(h->own >= h->first && h->owned >= 0 && h->own + h->owned <= h->first + h->count);
        assert(h->count == 0 || (h->weight >= 0 && h->weight + element * h->count <= k->arena));
        assert(h->opt < (h->memory == MEMORY_HOST ? k->host : k->arena) || h->owned == 0);
    }
}

void replay_expects(const struct rt_program *p, const struct rt_rank *k) {
    assert(k->number >= 0 && k->number < p->workers && k->nlanes > 0);
    assert(k->begin >= 0 && k->begin <= k->end && k->end <= k->nins);
    assert(p->period > 0 ? p->repeats >= 1 : k->end == 0);
    assert(!k->work || (k->work->off >= 0 && k->work->off + k->work->bytes <= k->arena));
    expect_homes(p, k);
    expect_lanes(k);
    for (const struct rt_instr *x = k->ins; x < k->ins + k->nins; x++) {
        assert((int)x->op >= 0 && (int)x->op < NOPS && x->bytes >= 0);
        expect_operands(k, x);
        if (is_message(x->op))
            expect_message(p, k, x);
        else
            expect_work(p, k, x);
    }
}
