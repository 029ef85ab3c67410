/* The rows of ops.h, wherever one repeats what another one, or its own meaning, implies. */
#include "ir/program.h"
#include <criterion/criterion.h>
#include <string.h>

Test(ops, jobs_come_first) {
    for (int op = 0; op < NOPS; op++) {
        const struct op_row *x = op_row(op);
        cr_assert_eq(is_job(op), x->cost == COST_JOB, "%s", x->name);
        cr_assert_eq(is_job(op), x->tensor == K_none, "%s: who has no tensor needs a microbatch", x->name);
        cr_assert(!has_cost(op) || (x->lane == LANE_COMPUTE && x->letter == x->name[0] && !x->name[1]), "%s", x->name);
    }
}

Test(ops, partners_name_each_other) {
    for (int op = 0; op < NOPS; op++) {
        const struct op_row *x = op_row(op);
        cr_assert_eq(is_message(op), is_send(op) + is_recv(op) + is_group(op), "%s", x->name);
        cr_assert(is_message(op) || (x->lane != LANE_SEND && x->lane != LANE_GROUP), "%s: that lane's are messages",
                  x->name);
        cr_assert_eq(is_send(op) || is_recv(op), x->cost == COST_LINK, "%s", x->name);
        if (!is_message(op))
            continue;
        const struct op_row *y = op_row(x->partner);
        cr_assert_eq(y->partner, op, "%s", x->name);
        cr_assert(y->tensor == x->tensor && y->letter == x->letter && y->cost == x->cost, "%s", x->name);
        cr_assert_eq(is_group(op), x->partner == op, "%s", x->name);
        cr_assert(!is_send(op) || (is_recv(x->partner) && x->partner == op + 1), "%s: its RECV follows it", x->name);
    }
}

/* A SEND reads one tensor and a RECV writes one, of the kind that the meaning names. No two SENDs send the same. */
Test(ops, messages_carry_what_they_say) {
    bool sent[NKINDS] = {false};
    for (int op = 0; op < NOPS; op++) {
        const struct op_row *x = op_row(op);
        if (!is_send(op) && !is_recv(op))
            continue;
        const uint8_t *role;
        cr_assert_eq(op_roles(op, &role), 1, "%s", x->name);
        cr_assert_eq(op_access(op, role[0]), is_send(op) ? ACC_READ : ACC_WRITE, "%s", x->name);
        const struct kind_row *kind = kind_row(x->tensor);
        struct text named = {0};
        put(&named, " %s%s", kind->name, kind->has_batch ? "(s,b)" : "(s)");
        cr_assert(strstr(x->meaning, named.s), "%s: \"%s\", but its tensor is%s", x->name, x->meaning, named.s);
        cr_assert(!is_send(op) || !sent[x->tensor], "%s: another sends %s", x->name, kind->name);
        sent[x->tensor] |= is_send(op);
    }
}

Test(ops, lanes_are_read_as_they_are_written) {
    int32_t ranks[] = {0, 2};
    struct group group = {2, ranks};
    struct program p = {.group = &group, .ngroups = 1};
    for (int kind = 0; kind < NLANEKINDS; kind++) {
        int of = lanekind_row(kind)->of;
        struct lane lane = {(uint8_t)kind, of == OF_PEER ? 12 : -1, of == OF_GROUP ? 0 : -1};
        struct text t = {0};
        put_lane(&t, &p, &lane);
        const char *at = t.s;
        cr_assert_eq(lane_kind(&at), kind, "%s", t.s);
        cr_assert_str_eq(at, of == OF_PEER ? "12" : of == OF_GROUP ? "0,2" : "", "%s", t.s);
        cr_assert_eq(kind == LANE_COMPUTE, kind == 0, "compute is a rank's first lane");
    }
    const char *none[] = {"", "sends 1", "send", "group"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        const char *at = none[i];
        cr_assert(lane_kind(&at) == -1 && at == none[i], "%s", none[i]);
    }
}

Test(ops, lane_lists) {
    struct instr ins[] = {{.lane = 2}, {.lane = 0}, {.lane = 2}, {.lane = 0}, {.lane = 3}};
    struct rank k = {.ins = ins, .nins = 5, .nlanes = 4};
    struct lane_lists l = lane_lists(&k);
    int32_t at[] = {0, 2, 2, 4, 5}, want[] = {1, 3, 0, 2, 4};
    cr_assert_arr_eq(l.at, at, sizeof at);
    cr_assert_arr_eq(l.ins, want, sizeof want);
}
