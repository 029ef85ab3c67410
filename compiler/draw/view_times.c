/* Predicts and writes the times of operations. The reader knows an operation's needs, but has their times only after it
 * has settled the operations that made them. Both sides therefore settle operations in an order of dependency, lane by
 * lane, and predict from settled times, so that accepted errors do not add up. */
#include "view_times.h"
#include <stdlib.h>

struct lane_state {
    int32_t at, end, next; /* the next operation to settle; the next lane that waits for the same operation, or -1 */
};

struct need_time {
    int32_t row, place;
    bool message;
    int32_t sent, arrived, after, took; /* after: from the end of the operation that made it to `sent` */
};

struct op_time {
    int32_t symbol, before, need, waiter; /* before: the last one with its symbol in the lane, or -1; need: its first */
    bool settled;
    int32_t start, end, gap, length;
};

struct view_times {
    struct op_time *op;
    struct need_time *need;
    struct lane_state *lane;
    int32_t *row, *last; /* row: its first operation; last, per symbol: its last operation */
    int32_t n, nneeds, nlanes, nrows, nsymbols;
    size_t op_cap, need_cap, lane_cap, row_cap, last_cap;
    int32_t *ready, nready; /* a stack of lanes that may go on */
    int32_t slack;
};

struct view_times *view_times_begin(void) {
    return NEW(struct view_times, 1);
}

void view_times_row(struct view_times *times) {
    GROW(times->row, times->row_cap, (size_t)times->nrows + 1);
    times->row[times->nrows++] = times->n;
}

void view_times_lane(struct view_times *times) {
    GROW(times->lane, times->lane_cap, (size_t)times->nlanes + 1);
    times->lane[times->nlanes++] = (struct lane_state){times->n, times->n, -1};
}

void view_times_op(struct view_times *times, int32_t symbol, int32_t start, int32_t end) {
    struct lane_state *lane = &times->lane[times->nlanes - 1];
    GROW(times->op, times->op_cap, (size_t)times->n + 2); /* one more, whose needs end the last one's */
    GROW(times->last, times->last_cap, (size_t)symbol + 1);
    while (times->nsymbols <= symbol)
        times->last[times->nsymbols++] = -1;
    int32_t before = times->last[symbol] >= lane->at ? times->last[symbol] : -1;
    times->last[symbol] = times->n;
    times->op[times->n++] = (struct op_time){
        .symbol = symbol, .before = before, .need = times->nneeds, .waiter = -1, .start = start, .end = end};
    times->op[times->n].need = times->nneeds;
    lane->end = times->n;
}

void view_times_need(struct view_times *times, int32_t row, int32_t place) {
    GROW(times->need, times->need_cap, (size_t)times->nneeds + 1);
    times->need[times->nneeds++] = (struct need_time){.row = row, .place = place};
    times->op[times->n].need = times->nneeds;
}

void view_times_message(struct view_times *times, int32_t sent, int32_t arrived) {
    struct need_time *need = &times->need[times->nneeds - 1];
    need->message = true;
    need->sent = sent;
    need->arrived = arrived;
}

/* ---- settling ---- */

static int32_t maker_of(const struct view_times *times, const struct need_time *need) {
    return need->place < 0 ? -1 : times->row[need->row] + need->place;
}

/* Returns the predicted number of ticks if it is as good as the real one. */
static int32_t predicted_if_near(const struct view_times *times, int32_t predicted, int32_t real) {
    return abs(predicted - real) <= times->slack ? predicted : real;
}

/* Returns the same need of the operation before with the same symbol, or NULL. */
static const struct need_time *need_before(const struct view_times *times, int32_t i, int32_t k) {
    int32_t before = times->op[i].before;
    if (before < 0 || times->op[before].need == times->op[before + 1].need)
        return NULL;
    int32_t j = times->op[before].need + k, last = times->op[before + 1].need - 1;
    return &times->need[j < last ? j : last];
}

/* Settles a need's message. Returns when the need is there, or 0 if that is unknown. lane: when the lane is free */
static int32_t settle_need(struct view_times *times, int32_t i, int32_t k, int32_t lane) {
    struct need_time *need = &times->need[times->op[i].need + k];
    int32_t maker = maker_of(times, need);
    bool known = maker >= 0 && times->op[maker].settled;
    if (!need->message)
        return known ? times->op[maker].end : 0;
    const struct need_time *before = need_before(times, i, k);
    int32_t from = known ? times->op[maker].end : lane;
    need->after = predicted_if_near(times, before ? before->after : 0, need->sent - from);
    need->sent = from + need->after;
    need->took = predicted_if_near(times, before ? before->took : 0, need->arrived - need->sent);
    need->arrived = need->sent + need->took;
    return need->arrived;
}

static void settle_op(struct view_times *times, int32_t i, int32_t lane) {
    struct op_time *op = &times->op[i];
    const struct op_time *before = op->before >= 0 ? &times->op[op->before] : NULL;
    int32_t ready = lane;
    for (int32_t k = 0; k < op[1].need - op->need; k++) {
        int32_t there = settle_need(times, i, k, lane);
        ready = there > ready ? there : ready;
    }
    op->gap = predicted_if_near(times, before ? before->gap : 0, op->start - ready);
    op->start = ready + op->gap;
    op->length = predicted_if_near(times, before ? before->length : 0, op->end - op->start);
    op->end = op->start + op->length;
    op->settled = true;
    for (int32_t lane_at = op->waiter; lane_at >= 0; lane_at = times->lane[lane_at].next)
        times->ready[times->nready++] = lane_at;
}

/* Returns the first operation that i needs and that is not settled, or -1. */
static int32_t first_unsettled(const struct view_times *times, int32_t i) {
    for (int32_t j = times->op[i].need; j < times->op[i + 1].need; j++) {
        int32_t maker = maker_of(times, &times->need[j]);
        if (maker >= 0 && !times->op[maker].settled)
            return maker;
    }
    return -1;
}

static void stop_waiting(struct view_times *times, int32_t l) {
    int32_t *link = &times->op[first_unsettled(times, times->lane[l].at)].waiter;
    while (*link != l)
        link = &times->lane[*link].next;
    *link = times->lane[l].next;
}

/* Settles the operations of a lane up to one that needs what is not settled. force: settles the next one in any case */
static void settle_lane(struct view_times *times, int32_t l, int32_t first, bool force) {
    struct lane_state *lane = &times->lane[l];
    for (; lane->at < lane->end; force = false) {
        int32_t by = force ? -1 : first_unsettled(times, lane->at);
        if (by >= 0) {
            lane->next = times->op[by].waiter;
            times->op[by].waiter = l;
            return;
        }
        settle_op(times, lane->at, lane->at > first ? times->op[lane->at - 1].end : 0);
        lane->at++;
    }
}

/* Settles all lanes. If operations need each other in a circle, which only clocks that disagree could cause, the next
 * operation of the first lane goes ahead without the times of its needs. */
static void settle_all(struct view_times *times) {
    int32_t *first = NEW(int32_t, times->nlanes);
    times->ready = NEW(int32_t, times->nlanes + 1);
    for (int32_t l = 0; l < times->nlanes; l++)
        first[l] = times->lane[l].at;
    for (int32_t l = 0; l < times->nlanes; l++)
        settle_lane(times, l, first[l], false);
    for (int32_t l = 0; l < times->nlanes;) {
        while (times->nready > 0) {
            int32_t woken = times->ready[--times->nready];
            settle_lane(times, woken, first[woken], false);
        }
        if (times->lane[l].at == times->lane[l].end) {
            l++;
            continue;
        }
        stop_waiting(times, l);
        settle_lane(times, l, first[l], true);
    }
}

void view_times_end(struct view_times *times, int32_t slack, const struct view_time_columns *to) {
    times->slack = slack;
    settle_all(times);
    for (int32_t i = 0; i < times->n; i++) {
        const struct op_time *op = &times->op[i], *before = op->before >= 0 ? &times->op[op->before] : NULL;
        column_put(to->gap, op->gap - (before ? before->gap : 0));
        column_put(to->length, op->length - (before ? before->length : 0));
        for (int32_t k = 0; k < op[1].need - op->need; k++) {
            const struct need_time *need = &times->need[op->need + k], *same = need_before(times, i, k);
            if (!need->message)
                continue;
            column_put(to->after, need->after - (same ? same->after : 0));
            column_put(to->took, need->took - (same ? same->took : 0));
        }
    }
}
