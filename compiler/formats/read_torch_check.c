/* Checks what read_torch.c has read: each microbatch passes each stage once, weights are present when used, and the
 * rows run to their ends. Each tensor that changes ranks is sent and received by the right ranks, in the same order on
 * both. */
#include "read_torch.h"
#include <string.h>

static const char *action_name_at(const struct csv *csv, int what, int s, int b) {
    return torch_spelled(csv, &(struct action){.what = what, .s = s, .b = b});
}

/* ---- everything is present, once, and in its place ---- */

static int32_t find_action(const struct csv *csv, int what, int s, int b) {
    return csv->index[((int64_t)s * csv->batches + b) * NNUMBERED + what];
}

/* Returns the B or I; -1: neither. */
static int32_t find_backward(const struct csv *csv, int s, int b) {
    int32_t whole = find_action(csv, OP_B, s, b);
    return whole >= 0 ? whole : find_action(csv, OP_I, s, b);
}

static void check_place(struct csv *csv, const struct action *action) {
    int r = action->row - 1;
    if (csv->rank[action->s] >= 0 && csv->rank[action->s] != r)
        FAIL(csv, action, "stage %d is rank %d's, by row %d: a stage belongs to one rank", action->s,
             csv->rank[action->s], csv->rank[action->s] + 1);
    csv->rank[action->s] = r;
}

static void index_actions(struct csv *csv) {
    if ((int64_t)csv->stages * csv->batches * 2 > csv->jobs)
        die("%s: stages up to %d and microbatches up to %d need at least %lld jobs, but there are %d", csv->file,
            csv->stages - 1, csv->batches - 1, 2LL * csv->stages * csv->batches, csv->jobs);
    int64_t n = (int64_t)csv->stages * csv->batches * NNUMBERED;
    csv->index = NEW(int32_t, n);
    csv->rank = NEW(int, csv->stages);
    for (int64_t i = 0; i < n; i++)
        csv->index[i] = -1;
    for (int s = 0; s < csv->stages; s++)
        csv->rank[s] = -1;
    for (int32_t i = 0; i < csv->n; i++) {
        const struct action *action = &csv->action[i];
        check_place(csv, action);
        if (action->b < 0)
            continue;
        int32_t *at = &csv->index[((int64_t)action->s * csv->batches + action->b) * NNUMBERED + action->what];
        if (*at >= 0)
            FAIL(csv, action, "%s is already in row %d, column %d", torch_spelled(csv, action), csv->action[*at].row,
                 csv->action[*at].column);
        *at = i;
    }
}

static void check_jobs(const struct csv *csv, int s, int b) {
    static const uint8_t part[2] = {OP_I, OP_W};
    const char *rule = csv->old ? "a backward is BW, or B and W" : "a backward is B, or I and W";
    int32_t forward = find_action(csv, OP_F, s, b), whole = find_action(csv, OP_B, s, b);
    int32_t half[2] = {find_action(csv, OP_I, s, b), find_action(csv, OP_W, s, b)};
    bool split = half[0] >= 0 || half[1] >= 0;
    if (forward < 0 || (whole < 0 && !split))
        die("%s: there is no %s; every microbatch passes every stage forward and backward", csv->file,
            action_name_at(csv, forward < 0 ? OP_F : OP_B, s, b));
    if (!split || (whole < 0 && half[0] >= 0 && half[1] >= 0))
        return;
    const struct action *one = &csv->action[half[half[0] < 0]], *other = whole < 0 ? NULL : &csv->action[whole];
    if (other)
        FAIL(csv, one, "%s beside %s in row %d, column %d: %s", torch_spelled(csv, one), torch_spelled(csv, other),
             other->row, other->column, rule);
    FAIL(csv, one, "%s is nowhere; %s", action_name_at(csv, part[half[0] >= 0], s, b), rule);
}

/* Checks the tensor that stage s passes to its neighbour `to`: it must be sent if and only if they are on different
 * ranks. */
static void check_message(const struct csv *csv, int s, int to, int b) {
    int send = to > s ? SEND_F : SEND_B, pair[2] = {find_action(csv, send, s, b), find_action(csv, send + 1, to, b)};
    bool crosses = csv->rank[s] != csv->rank[to];
    for (int i = 0; i < 2; i++) {
        struct action wanted = {.what = send + i, .s = i ? to : s, .b = b};
        if (pair[i] >= 0 && !crosses)
            FAIL(csv, &csv->action[pair[i]], "%s, but stages %d and %d are on one rank", torch_spelled(csv, &wanted), s,
                 to);
        if (pair[i] < 0 && crosses)
            die("%s: there is no %s in row %d, and stages %d and %d are on ranks %d and %d", csv->file,
                torch_spelled(csv, &wanted), csv->rank[wanted.s] + 1, s, to, csv->rank[s], csv->rank[to]);
    }
}

static void check_complete(const struct csv *csv) {
    for (int s = 0; s < csv->stages; s++)
        for (int b = 0; b < csv->batches; b++)
            check_jobs(csv, s, b);
    for (int32_t i = 0; csv->comms && i < csv->n; i++) {
        const struct action *action = &csv->action[i];
        bool first = action->what == RECV_F || action->what == SEND_B,
             last = action->what == SEND_F || action->what == RECV_B;
        if ((first && action->s == 0) || (last && action->s == csv->stages - 1))
            FAIL(csv, action, "%s, but stage %d is the %s", torch_spelled(csv, action), action->s,
                 first ? "first" : "last");
    }
    for (int s = 0; csv->comms && s + 1 < csv->stages; s++)
        for (int b = 0; b < csv->batches; b++) {
            check_message(csv, s, s + 1, b);
            check_message(csv, s + 1, s, b);
        }
}

/* Returns the index of the send that a receive matches; -1: the action is no receive. */
static int32_t matching_send(const struct csv *csv, const struct action *action) {
    return action->what == RECV_F   ? find_action(csv, SEND_F, action->s - 1, action->b)
           : action->what == RECV_B ? find_action(csv, SEND_B, action->s + 1, action->b)
                                    : -1;
}

/* Checks the order of messages. PyTorch matches messages from one rank to another by order alone: a receive gets
 * whatever was sent next. */
static void check_order(const struct csv *csv) {
    int32_t *last = NEW(int32_t, csv->rows); /* per sender: its newest receive so far, which may be in an earlier row */
    memset(last, -1, sizeof *last * (size_t)csv->rows);
    for (int32_t i = 0; i < csv->n; i++) {
        const struct action *action = &csv->action[i];
        int32_t send = matching_send(csv, action);
        if (send < 0)
            continue;
        int from = csv->action[send].row - 1;
        const struct action *before = last[from] < 0 ? NULL : &csv->action[last[from]];
        if (before && before->row == action->row && matching_send(csv, before) > send)
            FAIL(csv, before,
                 "%s is received before %s, but rank %d sends %s before %s (row %d, column %d): messages from one rank "
                 "to another are matched by order, so receive them as they are sent",
                 torch_spelled(csv, before), torch_spelled(csv, action), from, torch_spelled(csv, &csv->action[send]),
                 torch_spelled(csv, &csv->action[matching_send(csv, before)]), from + 1, csv->action[send].column);
        last[from] = i;
    }
}

/* Checks that each wait follows its send and that, if any send is waited for, all are. */
static void check_waits(const struct csv *csv) {
    const struct action *one = NULL;
    for (int32_t i = 0; i < csv->n; i++) {
        const struct action *action = &csv->action[i];
        if (action->what != WAIT_SEND_F && action->what != WAIT_SEND_B)
            continue;
        struct action send = {.what = action->what == WAIT_SEND_F ? SEND_F : SEND_B, .s = action->s, .b = action->b};
        int32_t at = find_action(csv, send.what, action->s, action->b);
        if (at < 0 || at > i)
            FAIL(csv, action, "%s, but no %s is before it", torch_spelled(csv, action), torch_spelled(csv, &send));
        one = action;
    }
    for (int32_t i = 0; one && i < csv->n; i++) {
        const struct action *action = &csv->action[i];
        if ((action->what == SEND_F || action->what == SEND_B) &&
            find_action(csv, action->what == SEND_F ? WAIT_SEND_F : WAIT_SEND_B, action->s, action->b) < 0)
            FAIL(csv, action, "no wait for %s, but there is %s in row %d", torch_spelled(csv, action),
                 torch_spelled(csv, one), one->row);
    }
}

/* ---- weights: present when used, if ever resharded; reduced at the end ---- */

static void check_weights(const struct csv *csv) {
    bool *managed = NEW(bool, csv->stages), *held = NEW(bool, csv->stages), *reduced = NEW(bool, csv->stages),
         *waited = NEW(bool, csv->stages);
    for (int32_t i = 0; i < csv->n; i++)
        managed[csv->action[i].s] |= csv->action[i].what == UNSHARD || csv->action[i].what == RESHARD;
    for (const struct action *action = csv->action; action < csv->action + csv->n; action++) {
        if (action->what < NDIRS && managed[action->s] && !held[action->s])
            FAIL(csv, action, "%s needs weights that no %dUNSHARD has brought", torch_spelled(csv, action), action->s);
        if (action->what < NDIRS && action->what != OP_F && action->what != OP_I && reduced[action->s])
            FAIL(csv, action, "%s comes after %dREDUCE_GRAD", torch_spelled(csv, action), action->s);
        if (action->what == UNSHARD || action->what == RESHARD) {
            if (held[action->s] == (action->what == UNSHARD))
                FAIL(csv, action, "%s, but stage %d's weights are %s", torch_spelled(csv, action), action->s,
                     held[action->s] ? "there" : "not there");
            held[action->s] = action->what == UNSHARD;
        }
        if (action->what == WAIT_REDUCE_GRAD && !reduced[action->s])
            FAIL(csv, action, "%s, but no %dREDUCE_GRAD is before it", torch_spelled(csv, action), action->s);
        if (action->what == REDUCE_GRAD || action->what == WAIT_REDUCE_GRAD) {
            bool *once = action->what == REDUCE_GRAD ? reduced : waited;
            if (once[action->s])
                FAIL(csv, action, "a second %s", torch_spelled(csv, action));
            once[action->s] = true;
        }
    }
}

/* ---- the rows run to their ends ---- */

/* Returns what an action waits for, apart from earlier actions in its row; -1: nothing. which: 0 or 1, since there may
 * be two such waits. */
static int32_t need_of(const struct csv *csv, const struct action *action, int which) {
    int s = action->s, b = action->b;
    bool from_below = s > 0 && (!csv->comms || csv->rank[s - 1] == csv->rank[s]);
    bool from_above = s + 1 < csv->stages && (!csv->comms || csv->rank[s + 1] == csv->rank[s]);
    switch (action->what) {
    case OP_F:
        return which || s == 0 ? -1 : from_below ? find_action(csv, OP_F, s - 1, b) : find_action(csv, RECV_F, s, b);
    case OP_B:
    case OP_I:
        if (which == 0)
            return find_action(csv, OP_F, s, b);
        return s + 1 == csv->stages ? -1 : from_above ? find_backward(csv, s + 1, b) : find_action(csv, RECV_B, s, b);
    case OP_W: return which ? -1 : find_action(csv, OP_I, s, b);
    case SEND_F: return which ? -1 : find_action(csv, OP_F, s, b);
    case RECV_F:
    case RECV_B: return which ? -1 : matching_send(csv, action);
    case SEND_B: return which ? -1 : find_backward(csv, s, b);
    case WAIT_SEND_F: return which ? -1 : find_action(csv, RECV_F, s + 1, b);
    case WAIT_SEND_B: return which ? -1 : find_action(csv, RECV_B, s - 1, b);
    default: return -1;
    }
}

/* Returns what the action still waits for; -1: nothing. */
static int32_t missing(const struct csv *csv, const struct action *action, const bool *done) {
    for (int k = 0; k < 2; k++) {
        int32_t need = need_of(csv, action, k);
        if (need >= 0 && !done[need])
            return need;
    }
    return -1;
}

static void check_runs(const struct csv *csv) {
    bool *done = NEW(bool, csv->n);
    int32_t *at = NEW(int32_t, csv->rows), left = csv->n;
    memcpy(at, csv->begin, sizeof *at * (size_t)csv->rows);
    for (bool more = true; more;) {
        more = false;
        for (int r = 0; r < csv->rows; r++)
            while (at[r] < csv->begin[r + 1]) {
                const struct action *action = &csv->action[at[r]];
                if (missing(csv, action, done) >= 0 || (action->pair && missing(csv, action + 1, done) >= 0))
                    break;
                for (int k = 0; k <= action->pair; k++, left--)
                    done[at[r] + k] = true;
                at[r] += 1 + action->pair;
                more = true;
            }
    }
    /* Reports an action that waits for its own row, if there is one: it explains more than the actions that wait for
     * it. */
    for (int own = 1; left > 0 && own >= 0; own--)
        for (int r = 0; r < csv->rows; r++) {
            const struct action *action = &csv->action[at[r]];
            if (at[r] == csv->begin[r + 1])
                continue;
            action += missing(csv, action, done) < 0; /* the second of a pair */
            const struct action *need = &csv->action[missing(csv, action, done)];
            if (own && need->row != action->row)
                continue;
            FAIL(csv, action, "%s never runs: it needs %s, which %s", torch_spelled(csv, action),
                 torch_spelled(csv, need),
                 need->row == action->row ? "comes later in this row"
                                          : format("row %d, column %d never gets to", need->row, need->column));
        }
}

void torch_check(struct csv *csv) {
    index_actions(csv);
    check_complete(csv);
    check_order(csv);
    check_waits(csv);
    check_weights(csv);
    check_runs(csv);
}
