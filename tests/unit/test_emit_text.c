/* The text form, both ways: its content, that it reads back, every error of the reader, and that no bytes break it. */
#include "program_text.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* Teams, which the text in program_text.h lacks. */
static const char teams[] =
    "pianola 1\n"
    "program teams workers 3 stages 3 batches 4 tied 2\n"
    "team 0 of 2: F sum gather, B scatter exchange, W gather late sum late -\n"
    "team 2 of 3 divided\n"
    "parts W 0.0: 4-8 - 0-4\n"
    "parts B 1: 6-8 0-6\n"
    "parts W 1: - 0-8\n"
    "updates 2 4 1\n"
    "homes 0.0: 0\n"
    "homes 0.1: 1\n"
    "homes 1: 0 1\n"
    "homes 2.0: 0\n"
    "homes 2.1: 1\n"
    "homes 2.2: 2\n"
    "homes 3.0: 2\n"
    "homes 3.1: 0\n"
    "needs F 0.1 0: B 2.2 3, F 1 0\n"
    "rank 0 lane compute\n"
    "F 0.0 3[0/3] v0 w=weight(0.0) stash=stash(0.0,3) give=mid(0.0,3)#0 y=act(0.0,3)\n"
    "F 0.0 3[1/3] v0 w=weight(0.0) got=mid(0.0,3)#0 stash=stash(0.0,3) give=mid(0.0,3)#2 "
    "y=act(0.0,3) wait(ALL_REDUCE_A 0.0 3#0)\n"
    "F 0.0 3[2/3] v0 w=weight(0.0) got=mid(0.0,3)#3 stash=stash(0.0,3) y=act(0.0,3) work=work#1 "
    "wait(ALL_GATHER_A 0.0 3#2)\n"
    "F 2.1 0 v0 v=weight(3.1) work=work\n"
    "B 1 0[0/2] v0 dw=wgrad(1)[1/2]\n"
    "U 0.1 1 dw=wgrad(0.1) w=weight(0.1)\n"
    "rank 0 lane gather 0,1\n"
    "ALL_GATHER 3.1 by tree src=weight(3.1) w=weight(3.1)\n"
    "rank 0 lane group 0,1\n"
    "ALL_REDUCE 2.0 by ring dw=wgrad(2.0)\n"
    "rank 0 lane team 0,1\n"
    "ALL_REDUCE_A 0.0 3#0 by ring t=mid(0.0,3)#0 wait(F 0.0 3[0/3])\n"
    "ALL_GATHER_A 0.0 3#2 by ring src=mid(0.0,3)#2 t=mid(0.0,3)#3 wait(F 0.0 3[1/3])\n"
    "rank 0 issue\n"
    "0 3 0 3 0*4 1 2\n"
    "rank 0 memory 100\n"
    "weight(0.0) 0 8\n"
    "weight(0.1) - 8\n"
    "weight(3.1) - 8\n"
    "wgrad(0.1) - 8\n"
    "wgrad(1) - 8\n"
    "wgrad(2.0) - 8\n"
    "stash(0.0,3) 8 2\n"
    "act(0.0,3) 10 2\n"
    "mid(0.0,3)#0 12 4\n"
    "mid(0.0,3)#2 16 4\n"
    "mid(0.0,3)#3 20 8\n"
    "work - 8\n"
    "work#1 - 8\n"
    "rank 1 lane compute\n"
    "rank 1 issue\n"
    "rank 1 memory 0\n"
    "rank 2 lane compute\n"
    "rank 2 issue\n"
    "rank 2 memory 0\n";
/* Returns src with the first `old` replaced. */
static char *replaced(const char *src, const char *old, const char *new) {
    const char *at = strstr(src, old);
    cr_assert_not_null(at, "the test's text has no \"%s\"", old);
    return format("%.*s%s%s", (int)(at - src), src, new, at + strlen(old));
}

Test(emit_text, reads_back_identically) {
    struct program *p = parse(base);
    cr_assert_not_null(p, "%s", diag_text);
    cr_assert_str_eq(print(p), base);
    cr_assert_null(text_misread(p, print(p)));
}

Test(emit_text, teams_read_back_identically) {
    struct program *p = parse(teams);
    cr_assert_not_null(p, "%s", diag_text);
    cr_assert_str_eq(print(p), teams);
    cr_assert_null(text_misread(p, print(p)));
    static const struct member member[] = {{0, 0, 2}, {0, 1, 2}, {1, -1, 1}, {2, 0, 3},
                                           {2, 1, 3}, {2, 2, 3}, {3, 0, 2},  {3, 1, 2}};
    static const int update[] = {2, 2, 4, 1, 1, 1};
    cr_assert(p->stages == 6 && p->tied && p->unembedding == 3);
    for (int s = 0; s < 8; s++) {
        const struct member *m = &p->names.member[s];
        cr_assert(m->stage == member[s].stage && m->place == member[s].place && m->size == member[s].size, "set %d", s);
    }
    for (int s = 0; s < 6; s++) {
        const struct exchanges *forward = &p->exchange[s * NDIRS + OP_F], *back = &p->exchange[s * NDIRS + OP_B];
        cr_assert_eq(p->update[s], update[s]);
        cr_assert(forward->n == (s < 2 ? 2 : 0) && back->n == forward->n);
        cr_assert(s > 1 || (forward->at[0].op == OP_ALL_REDUCE_A && forward->at[1].op == OP_ALL_GATHER_A));
        const struct exchange *weight = p->exchange[s * NDIRS + OP_W].at;
        cr_assert_eq(p->exchange[s * NDIRS + OP_W].n, s < 2 ? 3 : 0);
        cr_assert(s > 1 || (weight[0].op == OP_ALL_GATHER_A && weight[0].late));
        cr_assert(s > 1 || (weight[1].op == OP_ALL_REDUCE_A && weight[1].late));
        cr_assert(s > 1 || (weight[2].op == OP_none && !weight[2].late));
        cr_assert(s > 1 || (back->at[0].op == OP_REDUCE_SCATTER_A && back->at[1].op == OP_ALL_TO_ALL_A));
    }
    const struct rank *k = p->rank;
    cr_assert(k->lane[3].kind == LANE_TEAM && k->lane[3].group == k->lane[1].group);
    cr_assert(k->ins[4].op == OP_F && k->ins[4].stage == 0 && k->ins[4].part == 2 && k->ins[4].last == 2);
    cr_assert(k->ins[5].stage == 4 && k->buf[k->arg[k->ins[5].arg].buf].stage == 7,
              "F 2.1 reads its part of the table");
    cr_assert(p->homes[1].rank[0] == 1 && p->homes[2].size == 2 && p->need[0].job.s == 1 && p->pred[0].s == 5);
}

Test(emit_text, reads_every_field) {
    struct program *p = parse(base);
    const struct rank *k = &p->rank[0];
    cr_assert_str_eq(p->name, "two words");
    cr_assert_eq(p->batches, 12);
    cr_assert_eq(k->nins, 12);
    cr_assert_eq(k->arena, 4096);
    const struct instr *zero = &k->ins[0], *f = &k->ins[1], *i = &k->ins[2], *send = &k->ins[3], *w = &k->ins[6];
    cr_assert(zero->op == OP_ZERO && !zero->first && zero->stage == 2 && zero->batch == -1 && zero->msg == -1);
    cr_assert(f->op == OP_F && f->narg == 5 && f->peer == -1 && f->inst == -1 && f->lane == 0);
    cr_assert(k->arg[f->arg + 2].role == ROLE_x && k->arg[f->arg + 2].buf == 7);
    cr_assert(i->nwait == 2 && k->wait[i->wait] == 3 && k->wait[i->wait + 1] == 4);
    cr_assert(send->op == OP_SEND_F && send->peer == 1 && send->lane == 1 && send->nfree == 1);
    cr_assert_eq(k->freed[send->free], 8);
    cr_assert(w->op == OP_W && !w->first && w->nfree == 2);
    cr_assert(k->ins[5].op == OP_ADD && k->ins[5].first && k->ins[5].lane == 2 && k->ins[5].msg == -1);
    cr_assert(k->ins[9].op == OP_FETCH && k->ins[9].inst == 0);
    cr_assert(k->lane[3].kind == LANE_GROUP && k->lane[3].peer == -1 && p->group[k->lane[3].group].n == 2);
    cr_assert(k->buf[2].off == -1 && k->buf[9].grows == 10 && k->buf[10].grows == -1);
    cr_assert(k->buf[5].kind == K_work && k->buf[5].stage == -1 && k->buf[11].inst == 1);
}

Test(emit_text, numbers_messages_by_rank_and_issue) {
    struct program *p = parse(base);
    const struct instr *a = p->rank[0].ins, *b = p->rank[1].ins;
    cr_assert_eq(p->nmsgs, 5);
    int mine[] = {a[3].msg, a[7].msg, a[8].msg}; /* SEND_F, ALL_REDUCE, SERVE */
    int theirs[] = {b[1].msg, b[2].msg};         /* SEND_G, SERVE */
    cr_assert(mine[0] == 0 && mine[1] == 1 && mine[2] == 2 && theirs[0] == 3 && theirs[1] == 4);
    cr_assert(b[0].msg == 0 && b[3].msg == 2 && b[4].msg == 1); /* RECV_F, FETCH, ALL_REDUCE */
    cr_assert(a[4].msg == 3 && a[9].msg == 4);                  /* RECV_G, FETCH */
}

/* Messages are received in another order than sent, so the guess fails and the table is used. */
Test(emit_text, matches_messages_out_of_order) {
    struct program *p = parse(replaced(base, "RECV_F 0 0 from 0 t=act(0,0)\nFETCH 0#3 from 0 t=weight(0)#3\n",
                                       "FETCH 0#3 from 0 t=weight(0)#3\nRECV_F 0 0 from 0 t=act(0,0)\n"));
    cr_assert_not_null(p, "%s", diag_text);
    cr_assert(p->rank[1].ins[0].op == OP_FETCH && p->rank[1].ins[0].msg == 2);
    cr_assert(p->rank[1].ins[3].op == OP_RECV_F && p->rank[1].ins[3].msg == 0);
}

Test(emit_text, lenient_numbering_names_who_has_no_partner) {
    struct program *p = parse(base);
    p->rank[1].ins[0].batch = 5;
    cr_assert_str_eq(number_messages(p, true), "SEND_F 0 0 to 1 on rank 0, lane send 1, has no partner: "
                                               "rank 1 has no RECV_F 0 0 from 0");
    cr_assert(p->rank[1].ins[0].msg == -1 && p->rank[0].ins[3].msg == -1);
    p = parse(base);
    p->rank[1].ins[4].stage = 1;
    cr_assert_str_eq(number_messages(p, true),
                     "ALL_REDUCE 2 on rank 0, lane group 0,1, is missing on another rank of its "
                     "group");
    p = parse(base);
    p->rank[0].ins[8] = p->rank[0].ins[3]; /* SEND_F twice: only one is received */
    cr_assert_not_null(number_messages(p, true));
    cr_assert(p->rank[0].ins[3].msg == 0 && p->rank[0].ins[8].msg == -1 && p->rank[1].ins[3].msg == -1);
    p = parse(base);
    p->rank[0].ins[5] = p->rank[0].ins[4]; /* RECV_G twice: only one is sent */
    cr_assert_str_eq(number_messages(p, true), "RECV_G 1 from 1 on rank 0, lane recv 1, has no partner: "
                                               "rank 1 has no SEND_G 1 to 0");
    cr_assert(p->rank[0].ins[4].msg == 3 && p->rank[0].ins[5].msg == -1);
}

Test(emit_text, issue_order_wraps_at_100_columns) {
    struct text t = {0};
    put(&t, "pianola 1\nprogram x workers 2 stages 1 batches 500\n");
    for (int r = 0; r < 2; r++) {
        put(&t, "rank %d lane compute\n", r);
        for (int b = 0; b < 300; b++)
            put(&t, "F 0 %d\n", b);
        put(&t, "rank %d lane %s %d\n", r, r ? "recv" : "send", 1 - r);
        for (int b = 0; b < 150; b++)
            put(&t, "%s_F 0 %d %s %d\n", r ? "RECV" : "SEND", b, r ? "from" : "to", 1 - r);
        put(&t, "rank %d issue\n", r);
        for (int b = 0; b < 150; b++)
            put(&t, "0*2 1\n");
        put(&t, "rank %d memory 0\n", r);
    }
    struct program *p = parse(t.s);
    cr_assert_not_null(p, "%s", diag_text);
    const char *out = print(p), *at = strstr(out, "rank 0 issue\n") + strlen("rank 0 issue\n");
    cr_assert_eq(strcspn(at, "\n"), 99); /* 16 times "0*2 1 ", and "0*2": one more " 1" would be the 101st */
    cr_assert_eq(strncmp(at + 90, "0*2 1 0*2\n1 0*2", 15), 0, "%.110s", at);
    cr_assert_null(text_misread(p, out));
}

/* Moving an instruction moves its line and changes no other, which makes git diff readable. */
Test(emit_text, moving_an_instruction_moves_its_line) {
    struct program *p = parse(base);
    struct rank *k = &p->rank[0];
    struct instr a = k->ins[10], b = k->ins[11];
    k->ins[10] = b; /* F 1 11 and U 0: both on the compute lane, and nothing waits for them */
    k->ins[11] = a;
    const char *want = replaced(replaced(base, "F 1 11 w=weight(1)#0\n", ""), "w=weight(0)\nrank 0 lane send",
                                "w=weight(0)\nF 1 11 w=weight(1)#0\nrank 0 lane send");
    cr_assert_str_eq(print(p), want);
}

Test(emit_text, names_of_any_bytes_survive) {
    static const char *const name[] = {"", "%", "a b", "100%\n\t", "\x7f", "é", "lpp-2.1_x"};
    for (int i = 0; i < 7; i++) {
        struct program *p = parse(base);
        p->name = name[i];
        struct program *q = parse(print(p));
        cr_assert_not_null(q, "%s", diag_text);
        cr_assert_str_eq(q->name, name[i]);
    }
}

Test(read_text, errors_show_the_line_and_the_place) {
    cr_assert_null(parse(replaced(base, "t=act(0,0) wait", "t=atc(0,0) wait")));
    cr_assert_str_eq(diag_text, "t.txt:11: error: \"atc\" is not a kind of buffer; did you mean \"act\"?\n"
                                "   11 | SEND_F 0 0 to 1 t=atc(0,0) wait(F 0 0) free(act(0,0))\n"
                                "      |                   ^\n");
}

struct mistake {
    const char *old, *new, *error;
};
static const struct mistake mistakes[] = {
    {"pianola 1", "pianola 2", "1: error: expected \"pianola 1\", the first line of a program's text form"},
    {"pianola 1", "pianola 1 ", "1: error: expected the end of the line"},
    {"program", "programme", "2: error: expected \"program \""},
    {"two%20words", "two%2", "2: error: expected two of 0-9 A-F after %"},
    {" workers 2", " worker 2", "2: error: expected \" workers \""},
    {"workers 2", "workers 0", "2: error: expected how many workers, a number from 1"},
    {"workers 2", "workers 9",
     "2: error: 9 workers have three sections each, lane, issue and memory; the file has 12 in all"},
    {"workers 2", "workers 3", "52: error: the file ends before rank 2's memory section"},
    {"workers 2", "workers 1", "6: error: expected a rank, a number from 0 to 0"},
    {"stages 3", "stages 99999999999999999999", "2: error: expected how many stages, a number from 1"},
    {"stages 3", "stages 18446744073709551619", "2: error: expected how many stages, a number from 1"},
    {"batches 12", "batches 1x", "2: error: expected the end of the line"},
    {"rank 0 lane compute\n", "", "3: error: expected \"rank 0\": its lanes, issue and memory"},
    {"rank 0 lane compute\n", "rank 0 lane send 1\n", "3: error: expected \"compute\", a rank's first lane"},
    {"rank 0 lane send 1", "rank 0 lane compute", "10: error: the compute lane comes first and only once"},
    {"rank 0 lane send 1", "rank 0 lane sned 1",
     "10: error: expected \"compute\", \"send\", \"recv\", \"peer\", "
     "\"messages\", \"gather\", \"group\", \"team\", \"offload\" or \"reload\""},
    {"rank 0 lane send 1", "rank 0 lane send 0", "10: error: a rank has no lane to or from itself"},
    {"rank 0 lane send 1", "rank 0 lane send 2", "10: error: expected a rank, a number from 0 to 1"},
    {"rank 0 lane group", "rank 0 lane recv 1\nrank 0 lane group", "17: error: rank 0 has a lane for this already"},
    {"lane group 0,1", "lane group 0,0", "17: error: rank 0 comes twice"},
    {"lane group 0,1", "lane group 1", "17: error: expected a group of at least two ranks, one of them rank 0"},
    {"ZERO 2", "ZERRO 2", "4: error: \"ZERRO\" is not an operation; did you mean \"ZERO\"?"},
    {"ZERO 2", "0 2", "4: error: expected an operation"},
    {"ZERO 2", "ZERO 3", "4: error: expected a stage, a number from 0 to 2"},
    {"ZERO 2", "ZERO 02", "4: error: expected a stage, a number from 0 to 2"},
    {"ZERO 2", "ZERO2", "4: error: expected \" \""},
    {"F 0 0 w", "F 0 w", "5: error: expected a microbatch, a number from 0 to 11"},
    {"F 0 0 w", "F 0 12 w", "5: error: expected a microbatch, a number from 0 to 11"},
    {"x=act(1,0)", "z=act(1,0)", "5: error: \"z\" is not an operand; did you mean \"w\"?"},
    {"x=act(1,0)", "dw=act(1,0)", "5: error: F takes no operand dw"},
    {"x=act(1,0)", "w=act(1,0)", "5: error: F takes only one w"},
    {"w=weight(0) x=act(1,0)", "x=act(1,0) w=weight(0)", "5: error: F takes w before x"},
    {"dw+=wgrad(0) free", "dw=wgrad(0)[1/2] dw+=wgrad(0)[0/2] free",
     "7: error: an instruction either writes all pieces of its dw, with dw=, or adds to all, with dw+="},
    {"dw+=wgrad(0) free", "dw+=wgrad(0)[1/2] dw=wgrad(0)[0/2] free",
     "7: error: an instruction either writes all pieces of its dw, with dw=, or adds to all, with dw+="},
    {"y=act(0,0)", "y+=act(0,0)", "5: error: expected \"=\""},
    {"y=act(0,0)", "y=act(0,0) ", "5: error: expected an operand"},
    {"y=act(0,0)", "y=act(0,11)", "5: error: rank 0 has no buffer act(0,11) in its memory section"},
    {"y=act(0,0)", "y=act(0)", "5: error: expected \",\""},
    {"y=act(0,0)", "y=act", "5: error: a buffer is written act(stage,microbatch)"},
    {"w=weight(0) x", "w=weight x", "5: error: a buffer is written weight(stage)"},
    {"w=weight(1)#0", "w=weight(1)#", "8: error: expected the number of an instance, a number from 0"},
    {"wait(SEND_F 0 0 to 1,", "wait(SEND_F 1 0 to 1,", "6: error: rank 0 has no instruction SEND_F 1 0 to 1"},
    {"wait(SEND_F 0 0 to 1,", "wait(F 0 0,", "6: error: F 0 0 is in the same lane, whose order needs no wait"},
    {"RECV_G 1 from 1)", "RECV_G 1 from 1", "6: error: expected \")\""},
    {"wait(F 0 0) free(act(0,0))", "free(act(0,0)) wait(F 0 0)", "11: error: expected the end of the line"},
    {"free(act(0,0))", "free()", "11: error: expected a kind of buffer"},
    {"SEND_F 0 0 to 1 t", "SEND_F 0 0 from 1 t", "11: error: expected \" to \""},
    {"SEND_F 0 0 to 1 t", "SEND_F 0 0 to 0 t", "11: error: the peer of this lane is rank 1, not rank 0"},
    {"SEND_F 0 0 to 1 t", "RECV_F 0 0 from 1 t", "11: error: RECV_F belongs in a recv lane"},
    {"F 1 11 w=weight(1)#0", "F 0 0", "8: error: rank 0 has F 0 0 twice; the other is on line 5"},
    {"rank 0 issue", "rank 0 isue", "19: error: expected \"issue\""},
    {"0*3 1 2*2", "0*9 1 2*2", "20: error: lane 0 has only 6 instructions"},
    {"0*3 1 2*2", "0*0 1 2*2", "20: error: expected how often the lane occurs, a number from 1"},
    {"0*3 1 2*2", "7 0*3 1 2*2", "20: error: expected the number of a lane, a number from 0 to 3"},
    {" 3 1 2 0*2", " 1 2 0*2", "21: error: the issue order lacks 1 instructions of lane 3"},
    {"rank 0 memory 4096", "rank 0 memory -1",
     "21: error: expected the arena's bytes, a number from 0 to 4611686018427387904"},
    {"weight(0) 0 64", "weight(0) 0 4097",
     "22: error: the buffer ends past the end of the rank's memory of 4096 bytes"},
    {"weight(0) 0 64", "weight(0) 9223372036854775807 64",
     "22: error: the buffer ends past the end of the rank's memory of 4096 bytes"},
    {"weight(0) 0 64", "weight(0) 0 9223372036854775808", "22: error: expected a size in bytes, a number from 0"},
    {"opt(0) 128", "wgrad(0) 128", "26: error: rank 0 has two buffers wgrad(0)"},
    {"grows wstash(0,0)", "grows wstash(0,1)", "31: error: rank 0 has no buffer wstash(0,1) in its memory section"},
    {"grows wstash(0,0)", "becomes wstash(0,0)", "31: error: expected the end of the line"},
    {"rank 1 memory 0\nwgrad(1) - 64\nwgrad(2) - 64\nweight(1) - 64\nact(0,0) - 8\nweight(0)#3 - 64\n", "",
     "46: error: the file ends before rank 1's memory section"},
    {"weight(0)#3 - 64\n", "weight(0)#3 - 6", "51: error: the file ends inside a line: is it cut off?"},
    {"weight(0)#3 - 64\n", "weight(0)#3 - 64\n\n", "52: error: expected a kind of buffer"},
    {"weight(0)#3 - 64\n", "weight(0)#3 - 64\nrank 2 issue\n",
     "52: error: expected the end of the file after rank 1's memory"},
};

static const struct mistake team_mistakes[] = {
    {"team 0 of 2:", "team 0 of 1:", "3: error: expected how many members, a number from 2"},
    {"team 0 of 2:", "team 0 of 4:", "3: error: a team of 4, but there are only 3 workers"},
    {"team 0 of 2:", "team 3 of 2:",
     "3: error: expected a stage after the stages of earlier lines, a number from 0 to 2"},
    {"team 2 of 3", "team 0 of 3",
     "4: error: expected a stage after the stages of earlier lines, a number from 1 to 2"},
    {"team 2 of 3 divided", "team 2 of 3 dividend", "4: error: expected the end of the line"},
    {"team 2 of 3", "team 2 by 3", "4: error: expected \" of \""},
    {"F sum gather", "F", "3: error: expected \" \""},
    {"F sum gather", "sum F gather", "3: error: \"sum\" is not a job"},
    {"F sum gather", "F sum gathers", "3: error: \"gathers\" is not an exchange; did you mean \"gather\"?"},
    {"F sum gather, B", "B sum gather, F", "3: error: F comes before B, each only once"},
    {"F sum gather, B", "F sum gather, F", "3: error: F comes before F, each only once"},
    {"sum late -", "sum -",
     "3: error: the part after it would get two exchanges: after a late exchange must come another late one, or -"},
    {"sum late -", "sum late", "3: error: no part gets it: after a late exchange must come another late one, or -"},
    {"late -", "late - late", "3: error: \"late\" is not an exchange"},
    {"gather, B", "gather; B", "3: error: expected the end of the line"},
    {"stages 3", "stages 300",
     "3: error: 300 stages have 303 members, each with jobs of its own; the file has 49 more lines"},
    {"parts W 0.0", "parts W 0", "5: error: stage 0 has a team of 2: expected a member, as in 0.0"},
    {"parts W 0.0", "parts I 0.0", "5: error: I contributes to no gradient; only B and W do"},
    {"parts W 0.0", "parts B 3.0", "5: error: expected a stage, a number from 0 to 2"},
    {"parts W 1", "parts B 1", "7: error: stages ascend, B comes before W, each only once"},
    {"parts W 0.0", "parts W 1", "6: error: stages ascend, B comes before W, each only once"},
    {"parts W 0.0", "bare 1\nparts W 0.0", "7: error: stage 1 has no weights"},
    {": 4-8 - 0-4", "", "5: error: expected \":\""},
    {": 4-8 - 0-4", ":", "5: error: expected \" \""},
    {" 4-8 -", " 4 -", "5: error: expected \"-\""},
    {" 4-8 -", " 4-4 -", "5: error: expected the byte after the last that a part contributes, a number from 5"},
    {"updates 2 4 1", "updates 2 2 4 1 1 1", "8: error: expected the end of the line"},
    {"homes 0.1", "homes 0", "10: error: stage 0 has a team of 2: expected a member, as in 0.0"},
    {"homes 0.1", "homes 1", "10: error: expected the next set, 0.1"},
    {"homes 0.1: 1\n", "", "10: error: expected the next set, 0.1"},
    {"homes 2.2: 2\nhomes 3.0: 2\nhomes 3.1: 0\n", "",
     "14: error: expected \"homes 2.2\": if one set has such a line, all must have one"},
    {"F 0.1 0:", "F 0 0:", "17: error: stage 0 has a team of 2: expected a member, as in 0.0"},
    {"B 2.2 3,", "B 2.3 3,", "17: error: expected a member of the team, a number from 0 to 2"},
    {"F 1 0\n", "F 1.0 0\n", "17: error: expected \" \""},
    {"F 2.1 0 v", "F 3 0 v", "22: error: expected a stage, a number from 0 to 2"},
    {"F 2.1 0 v", "F 2.1 0[0/2] v",
     "22: error: F does not run in parts: only B and W do, and jobs that exchange data with a team"},
    {"U 0.1 1", "U 3 0", "24: error: stage 3 has a team of 2: expected a member, as in 3.0"},
    {"work=work\n", "work=work(0)\n", "22: error: expected the end of the line"},
    {"work=work#1", "work=work#2", "21: error: rank 0 has no buffer work#2 in its memory section"},
    {"mid(0.0,3)#0 y", "mid(0,3)#0 y", "19: error: stage 0 has a team of 2: expected a member, as in 0.0"},
    {"ALL_REDUCE 2.0 by", "ALL_REDUCE_A 2.0 0 by", "28: error: ALL_REDUCE_A belongs in a team lane"},
    {"rank 0 lane team 0,1", "rank 0 lane group 0,1", "29: error: rank 0 has a lane for this already"},
    {"rank 0 lane group 0,1", "rank 0 lane team 0,1", "28: error: ALL_REDUCE belongs in a group lane"},
    {"t=mid(0.0,3)#3 wait(F 0.0 3[1/3])\n",
     "t=mid(0.0,3)#3 wait(F 0.0 3[1/3])\nrank 0 lane team 0,1\nALL_REDUCE_A 0.0 2#0 by ring t=mid(0.0,3)#0\n",
     "32: error: rank 0 has a lane for this already"},
};

static void are_mistakes(const char *text, const struct mistake *mistake, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct program *p = parse(replaced(text, mistake[i].old, mistake[i].new));
        cr_expect_null(p, "accepted: %s", mistake[i].new);
        diag_text[strcspn(diag_text, "\n")] = 0;
        cr_expect_str_eq(diag_text, format("t.txt:%s", mistake[i].error));
    }
}

Test(read_text, says_what_is_wrong) {
    are_mistakes(base, mistakes, sizeof mistakes / sizeof *mistakes);
    are_mistakes(teams, team_mistakes, sizeof team_mistakes / sizeof *team_mistakes);
}

/* Readable but wrong programs are left to the proof. */
Test(read_text, leaves_messages_without_a_partner_to_the_proof) {
    const char *const wrong[][2] = {{"RECV_F 0 0 from 0", "RECV_F 1 0 from 0"}, {"ALL_REDUCE 2", "ALL_REDUCE 1"}};
    for (size_t i = 0; i < 2; i++) {
        struct program *p = parse(replaced(base, wrong[i][0], wrong[i][1]));
        cr_assert_not_null(p, "%s", diag_text);
        cr_assert_not_null(number_messages(p, true), "all have partners: %s", wrong[i][1]);
        cr_assert_not_null(verify_text(p));
    }
}

Test(read_text, counts_that_do_not_fit_are_errors) {
    struct text many = {0};
    for (int i = 0; i < 65536; i++)
        put(&many, "x=act(1,0) ");
    cr_assert_null(parse(replaced(base, "x=act(1,0) ", many.s)));
    cr_assert_not_null(strstr(diag_text, "5: error: an instruction has at most 65535 operands"), "%s", diag_text);
    many.n = 0;
    for (int i = 0; i < 65536; i++)
        put(&many, "%sact(1,0)", i ? " " : "");
    cr_assert_null(parse(replaced(base, "free(act(0,0)", format("free(%s", many.s))));
    cr_assert_not_null(strstr(diag_text, "11: error: an instruction frees at most 65535 buffers"), "%s", diag_text);
    many.n = 0;
    for (int i = 0; i < 65536; i++)
        put(&many, "F 0 0, ");
    cr_assert_null(parse(replaced(base, "wait(F 0 0", format("wait(%sF 0 0", many.s))));
    cr_assert_not_null(strstr(diag_text, "11: error: an instruction waits for at most 65535 others"), "%s", diag_text);
}

/* ---- no bytes may break the reader ---- */

static uint64_t seed = 2026;

static unsigned below(unsigned n) { /* xorshift64* (Vigna 2016) */
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return (unsigned)((seed * 2685821657736338717u) >> 33) % n;
}

static size_t line_start(const char *s, size_t n) {
    size_t at = below((unsigned)n);
    while (at > 0 && s[at - 1] != '\n')
        at--;
    return at;
}

/* Changes s, of n bytes with room for more, in one random way; returns its new length. */
static size_t mutate(char *s, size_t n, size_t room) {
    static const char *const words[] = {"9999999999", "-",  "#0",     " wait(F 0 0)", "*2147483647", "(", "\n",
                                        "rank 0 ",    "+=", "0,1,2,", "2147483647",   "\xff",        " ", "grows "};
    size_t at = below((unsigned)n), a = line_start(s, n), b = line_start(s, n);
    size_t na = strcspn(s + a, "\n"), len;
    const char *word = words[below(sizeof words / sizeof *words)];
    switch (below(7)) {
    case 0: /* another byte */ s[at] = (char)(1 + below(255)); return n;
    case 1: /* a byte of the file itself */ s[at] = s[below((unsigned)n)]; return n;
    case 2: /* a word from the list */
        len = strlen(word);
        if (n + len >= room)
            return n;
        memmove(s + at + len, s + at, n - at + 1);
        memcpy(s + at, word, len);
        return n + len;
    case 3: /* one line less */
        na += s[a + na] == '\n';
        memmove(s + a, s + a + na, n - a - na + 1);
        return n - na;
    case 4: /* one line more, or moved to a wrong place */
        na += s[a + na] == '\n';
        if (n + na >= room)
            return n;
        char *line = format("%.*s", (int)na, s + a);
        memmove(s + b + na, s + b, n - b + 1);
        memcpy(s + b, line, na);
        return n + na;
    case 5: /* cut off */ s[at] = 0; return at;
    default: /* another digit */
        while (at + 1 < n && (s[at] < '0' || s[at] > '9'))
            at++;
        s[at] = (char)('0' + below(10));
        return n;
    }
}

Test(read_text, survives_any_change) {
    enum { ROOM = 8192, ROUNDS = 6000 };
    char *s = malloc(ROOM);
    int good = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const char *text = round % 2 ? teams : base;
        size_t n = strlen(text);
        memcpy(s, text, n + 1);
        for (unsigned k = 1 + below(3); k > 0 && n > 0; k--)
            n = mutate(s, n, ROOM);
        struct program *p = parse(s);
        if (p) {
            const char *out = print(p);
            struct program *q = parse(out);
            cr_assert_not_null(q, "what was read does not read back:\n%s", diag_text);
            cr_assert_str_eq(print(q), out);
            good++;
        }
        free_all();
    }
    free(s);
    cr_assert(good > ROUNDS / 100 && good < ROUNDS / 2, "%d of %d changes were accepted", good, ROUNDS);
}
