/* text_misread finds every difference between a program and its text, and names that are not unique. */
#include "program_text.h"
#include <criterion/criterion.h>
#include <string.h>

/* Changes to a newly parsed program. */
enum {
    OP,
    LANE,
    STAGE,
    BATCH,
    PEER,
    INST,
    PART,
    WRITES,
    ALGORITHM,
    ROLE,
    BUFFER,
    PIECE,
    WAIT,
    FREE,
    ORDER,
    NAME,
    OFFSET,
    BYTES,
    GROWS,
    ARENA,
    MARK,
    GROUP,
    HEAD,
    NDIFFERENT
};

static void change(struct program *p, int what) {
    struct rank *k = &p->rank[0];
    struct instr *f = &k->ins[1], *i = &k->ins[2], *w = &k->ins[6];
    switch (what) {
    case OP: f->op = OP_R; return;
    case LANE: k->ins[3].lane = 2; return;
    case STAGE: f->stage = 1; return;
    case BATCH: f->batch = 1; return;
    case PEER: k->ins[3].peer = 0; return;
    case INST: k->ins[9].inst = 1; return;
    case PART: i->last = 1; return;
    case WRITES: w->first = true; return;
    case ALGORITHM: k->ins[7].algorithm = TREE; return;
    case ROLE: k->arg[f->arg].role = ROLE_v; return;
    case BUFFER: k->arg[f->arg].buf = 1; return;
    case PIECE: k->arg[f->arg].last = 1; return;
    case WAIT: k->wait[i->wait] = 4; return;
    case FREE: k->freed[w->free] = 0; return;
    case ORDER: k->ins[1] = *i, k->ins[2] = *f; return;
    case NAME: k->buf[6].stage = 2; return;
    case OFFSET: k->buf[0].off = 64; return;
    case BYTES: k->buf[0].bytes = 32; return;
    case GROWS: k->buf[9].grows = -1; return;
    case ARENA: k->arena++; return;
    case MARK: k->period.end = 1; return;
    case GROUP: p->group[k->lane[3].group].rank[0] = 1; return;
    case HEAD: p->batches++; return;
    }
}

Test(reads_back, says_what_the_text_does_not) {
    const char *text = base;
    for (int what = 0; what < NDIFFERENT; what++) {
        struct program *p = parse(base);
        cr_assert_null(text_misread(p, text), "%s", text_misread(p, text));
        change(p, what);
        cr_assert_not_null(text_misread(p, text), "difference %d", what);
    }
    cr_assert(!diag_trap);
}

/* Two buffers, or two instructions, share a name: the text has both, and the reader cannot tell them apart. */
Test(reads_back, names_are_unique) {
    struct program *p = parse(base);
    p->rank[0].buf[7] = p->rank[0].buf[6];
    cr_assert(strstr(text_misread(p, print(p)), "rank 0 has two buffers act(1,0)"));
    p = parse(base);
    p->rank[0].ins[9].inst = 3, p->rank[0].ins[8] = p->rank[0].ins[9];
    const char *why = text_misread(p, print(p));
    cr_assert(strstr(why, "rank 0 has FETCH 1#3 from 1 twice"), "%s", why);
}
