/* Reads the program's text form (emit_text.c describes it).
 *
 * Makes one pass over the lines, with one look ahead per rank, because operands name buffers, which the rank's last
 * section lists. Waits may name later instructions, so a rank's waits are resolved once its issue order is known.
 * Memory use is proportional to the lines read, and every number is checked against what it counts. So an invalid file
 * cannot make the reader crash, hang or take more memory than its length allows. */
#include "read_text.h"
#include <assert.h>
#include <string.h>

/* ---- buffers ---- */

/* Returns the slot of the map that holds the buffer of this name, or where it belongs. */
static uint32_t find_buffer(const struct reader *in, const struct buf *b) {
    uint64_t h = hash_add(hash_add(hash_add(hash_add(0, b->kind), b->stage), b->batch), b->inst);
    uint32_t at = map_start(&in->bufs, h);
    for (int32_t i; (i = in->bufs.slot[at] - 1) >= 0; at = map_next(&in->bufs, at)) {
        const struct buf *x = &in->k->buf[i];
        if (x->kind == b->kind && x->stage == b->stage && x->batch == b->batch && x->inst == b->inst)
            break;
    }
    return at;
}

static int32_t buffer(struct reader *in) {
    const char *at = in->p;
    struct buf b = read_buffer_name(in);
    int32_t i = in->bufs.slot[find_buffer(in, &b)] - 1;
    if (i < 0)
        FAIL(in, at, "rank %d has no buffer %.*s in its memory section", in->r, (int)(in->p - at), at);
    return i;
}

static void memory_line(struct reader *in) {
    const char *at = in->p;
    struct buf b = read_buffer_name(in);
    uint32_t slot = find_buffer(in, &b);
    if (in->bufs.slot[slot])
        FAIL(in, at, "rank %d has two buffers %.*s", in->r, (int)(in->p - at), at);
    read_word(in, " ");
    at = in->p;
    if (!read_if(in, "-"))
        b.off = read_integer(in, "an offset", 0, INT64_MAX);
    read_word(in, " ");
    b.bytes = read_integer(in, "a size in bytes", 0, INT64_MAX);
    bool host = memory_of(&b) == MEMORY_HOST;
    int64_t arena = host ? in->k->host : in->k->arena;
    if (b.off > arena - b.bytes && b.off >= 0)
        FAIL(in, at, "the buffer ends past the end of the rank's %smemory of %lld bytes", host ? "host " : "",
             (long long)arena);
    in->k->buf[in->k->nbufs++] = b;
    in->bufs.slot[slot] = in->k->nbufs;
}

/* Reads which buffers grow into which, once all buffers are known, in a second pass over the section's lines. */
static void read_grows(struct reader *in) {
    for (int i = 0; i < in->k->nbufs; i++) {
        while (*in->p != '\n' && strncmp(in->p, " grows ", 7))
            in->p++;
        if (read_if(in, " grows "))
            in->k->buf[i].grows = buffer(in);
        read_end(in);
    }
}

/* Reads the rank's last section, from its header on, and leaves the reader after it. */
static void read_memory(struct reader *in) {
    in->k->arena = read_integer(in, "the arena's bytes", 0, (int64_t)1 << 62);
    if (read_if(in, " host "))
        in->k->host = read_integer(in, "the bytes in host memory", 1, (int64_t)1 << 61);
    read_end(in);
    struct reader here = *in;
    int n = 0;
    for (const char *s = in->p; *s && strncmp(s, "rank ", 5); n++) {
        s += strcspn(s, "\n");
        s += *s == '\n';
    }
    in->k->buf = NEW(struct buf, n);
    in->bufs = map_new((size_t)n);
    while (*in->p && strncmp(in->p, "rank ", 5)) {
        memory_line(in);
        if (!strncmp(in->p, " grows ", 7))
            in->p += strcspn(in->p, "\n");
        read_end(in);
    }
    here.k = in->k;
    here.bufs = in->bufs;
    read_grows(&here);
}

/* ---- instructions ---- */

static bool role_repeats(int op, int role) {
    size_t n = strlen(role_name[role]);
    for (const char *s = op_row(op)->operands; *s; s += strcspn(s, " "), s += *s == ' ')
        if (!strncmp(s, role_name[role], n) && s[n] == ':')
            return s[n + 2] == '*';
    return false;
}

/* Reads a buffer, or a piece of it that has a whole number of bytes. */
static struct arg read_arg(struct reader *in, int role) {
    struct arg a = {.role = (uint32_t)role, .buf = buffer(in)};
    const char *at = in->p;
    if (!read_if(in, "["))
        return a;
    int64_t piece = read_integer(in, "the number of a piece", 0, MOST_PIECE - 1);
    read_word(in, "/");
    int64_t pieces = read_integer(in, "how many pieces", piece + 1 > 2 ? piece + 1 : 2, MOST_PIECE + 1);
    read_word(in, "]");
    if (in->k->buf[a.buf].bytes % pieces)
        FAIL(in, at, "the buffer's %lld bytes are not %lld equal pieces", (long long)in->k->buf[a.buf].bytes,
             (long long)pieces);
    a.piece = (uint32_t)piece & MOST_PIECE;
    a.last = (uint32_t)(pieces - 1) & MOST_PIECE;
    return a;
}

static void read_operand(struct reader *in, struct instr *x, int *last) {
    const char *at = in->p;
    const uint8_t *roles;
    int role = read_name(in, "an operand", role_name, NROLES), n = op_roles(x->op, &roles), k = 0;
    while (k < n && roles[k] != role)
        k++;
    if (k == n)
        FAIL(in, at, "%s takes no operand %s", op_name[x->op], role_name[role]);
    if (k < *last)
        FAIL(in, at, "%s takes %s before %s", op_name[x->op], role_name[role], role_name[roles[*last]]);
    if (k == *last && !role_repeats(x->op, role))
        FAIL(in, at, "%s takes only one %s", op_name[x->op], role_name[role]);
    bool adds = op_accumulates(x->op, role) && read_if(in, "+="), *first = role == ROLE_dv   ? &x->vfirst
                                                                           : role == ROLE_du ? &x->ufirst
                                                                                             : &x->first;
    if (!adds)
        read_word(in, "=");
    if (op_accumulates(x->op, role)) {
        if (k == *last && *first == adds)
            FAIL(in, at, "an instruction either writes all pieces of its %s, with %s=, or adds to all, with %s+=",
                 role_name[role], role_name[role], role_name[role]);
        *first = !adds;
    }
    *last = k;
    if (x->narg == UINT16_MAX)
        FAIL(in, at, "an instruction has at most %d operands", UINT16_MAX);
    GROW(in->k->arg, in->cap_arg, in->k->nargs + 1);
    in->k->arg[in->k->nargs++] = read_arg(in, role);
    x->narg++;
}

static void read_waits(struct reader *in, struct instr *x) {
    do {
        if (x->nwait == UINT16_MAX)
            FAIL(in, in->p, "an instruction waits for at most %d others", UINT16_MAX);
        GROW(in->wait_at, in->cap_wait, in->k->nwaits + 1);
        in->wait_at[in->k->nwaits++] = in->p;
        read_label(in);
        x->nwait++;
    } while (read_if(in, ", "));
    read_word(in, ")");
}

static void frees(struct reader *in, struct instr *x) {
    do {
        if (x->nfree == UINT16_MAX)
            FAIL(in, in->p, "an instruction frees at most %d buffers", UINT16_MAX);
        GROW(in->k->freed, in->cap_free, in->k->nfrees + 1);
        in->k->freed[in->k->nfrees++] = buffer(in);
        x->nfree++;
    } while (read_if(in, " "));
    read_word(in, ")");
}

static struct instr instruction(struct reader *in, int lane) {
    const struct lane *at = &in->k->lane[lane];
    const char *begin = in->p;
    struct instr x = read_label(in);
    if (!lane_takes(at->kind, x.op))
        FAIL(in, begin, "%s belongs in %s %s lane", op_name[x.op], op_lane[x.op] == LANE_COMPUTE ? "the" : "a",
             lanekind_row(op_lane[x.op])->word);
    if (x.peer != at->peer && lanekind_row(at->kind)->of == OF_PEER)
        FAIL(in, begin, "the peer of this lane is rank %d, not rank %d", at->peer, x.peer);
    x.lane = (uint16_t)lane;
    if (in->prog->update && is_job(x.op) && x.op != OP_W && reads_weights_of(in->prog, x.stage)) {
        read_word(in, " v");
        x.inst = (int32_t)read_integer(in, "the version of the weights that it reads", 0, INT32_MAX);
    }
    if (is_group(x.op)) {
        read_word(in, " by ");
        x.algorithm = (uint8_t)read_name(in, "an algorithm", algorithm_name, NALGORITHMS);
    }
    assert(in->k->nargs < UINT32_MAX && in->k->nwaits < UINT32_MAX && in->k->nfrees < UINT32_MAX);
    x.arg = (uint32_t)in->k->nargs;
    x.wait = (uint32_t)in->k->nwaits;
    x.free = (uint32_t)in->k->nfrees;
    for (int last = -1; *in->p == ' ' && !x.nwait && !x.nfree;) {
        in->p++;
        if (read_if(in, "wait("))
            read_waits(in, &x);
        else if (read_if(in, "free("))
            frees(in, &x);
        else
            read_operand(in, &x, &last);
    }
    if (x.nwait && read_if(in, " free("))
        frees(in, &x);
    read_end(in);
    return x;
}

/* ---- lanes and their order ---- */

static int group(struct reader *in) {
    const char *at = in->p;
    int32_t *rank = NULL;
    size_t cap = 0;
    int n = 0;
    uint64_t hash = 0;
    bool mine = false;
    in->listed++;
    do {
        GROW(rank, cap, (size_t)n + 1);
        rank[n] = read_new_rank(in);
        mine |= rank[n] == in->r;
        hash = hash_add(hash, rank[n++]);
    } while (read_if(in, ","));
    if (n < 2 || !mine)
        FAIL(in, at, "expected a group of at least two ranks, one of them rank %d", in->r);
    struct program *p = in->prog;
    uint32_t slot = map_start(&in->groups, hash);
    for (int g; (g = in->groups.slot[slot] - 1) >= 0; slot = map_next(&in->groups, slot))
        if (p->group[g].n == n && !memcmp(p->group[g].rank, rank, sizeof *rank * (size_t)n))
            return g;
    p->group[p->ngroups] = (struct group){n, rank};
    in->groups.slot[slot] = p->ngroups + 1;
    return p->ngroups++;
}

/* Records a lane; returns false if another already serves the same purpose. An edge has only one lane, or its messages
 * would have no order. */
static bool record_lane(struct reader *in, const struct lane *lane) {
    int32_t me = in->r + 1, *sent = in->sent + (lane->peer < 0 ? 0 : lane->peer);
    int32_t *received = in->received + (lane->peer < 0 ? 0 : lane->peer);
    switch (lane->kind) {
    case LANE_OFFLOAD:
    case LANE_RELOAD:
        for (int l = 0; l < in->k->nlanes; l++)
            if (in->k->lane[l].kind == lane->kind)
                return false;
        return true;
    case LANE_GATHER:
        if (in->gathered[lane->group] == me)
            return false;
        in->gathered[lane->group] = me;
        return true;
    case LANE_GROUP:
        if (in->grouped[lane->group] == me)
            return false;
        in->grouped[lane->group] = me;
        return true;
    case LANE_TEAM:
        if (in->teamed[lane->group] == me)
            return false;
        in->teamed[lane->group] = me;
        return true;
    case LANE_ALL:
        if (in->apart == me || in->together == me)
            return false;
        in->together = me;
        return true;
    default:
        if (in->together == me || (lane->kind != LANE_RECV && *sent == me) ||
            (lane->kind != LANE_SEND && *received == me))
            return false;
        *sent = lane->kind != LANE_RECV ? me : *sent;
        *received = lane->kind != LANE_SEND ? me : *received;
        in->apart = me;
        return true;
    }
}

/* Reads the rest of a line "rank 0 lane ...". */
static void lane_header(struct reader *in) {
    struct rank *k = in->k;
    const char *at = in->p;
    struct lane lane = {LANE_COMPUTE, -1, -1};
    const char *first = lanekind_row(LANE_COMPUTE)->word;
    if (k->nlanes == 0 && strncmp(at, first, strlen(first)))
        FAIL(in, at, "expected \"%s\", a rank's first lane", first);
    lane.kind = (uint8_t)read_lane_kind(in, "");
    if (lane.kind == LANE_COMPUTE && k->nlanes > 0)
        FAIL(in, at, "the %s lane comes first and only once", first);
    if (lanekind_row(lane.kind)->of == OF_PEER) {
        lane.peer = (int32_t)read_integer(in, "a rank", 0, in->prog->workers - 1);
        if (lane.peer == in->r)
            FAIL(in, at, "a rank has no lane to or from itself");
    } else if (lanekind_row(lane.kind)->of == OF_GROUP)
        lane.group = group(in);
    if (lane.kind != LANE_COMPUTE && !record_lane(in, &lane))
        FAIL(in, at, "rank %d has a lane for this already", in->r);
    if (k->nlanes > UINT16_MAX)
        FAIL(in, at, "a rank has at most %d lanes", UINT16_MAX + 1);
    read_end(in);
    GROW(k->lane, in->cap_lane, (size_t)k->nlanes + 1);
    k->lane[k->nlanes++] = lane;
}

/* Puts the instructions, read lane by lane, into issue order: lane l's start out as old[first[l] .. first[l+1]). */
static void read_issue(struct reader *in, const struct instr *old, const int32_t *old_line, const int32_t *first) {
    struct rank *k = in->k;
    int32_t *next = NEW(int32_t, k->nlanes);
    memcpy(next, first, sizeof *next * (size_t)k->nlanes);
    int done = 0, marks = in->prog->period ? 0 : 2;
    while (*in->p && strncmp(in->p, "rank ", 5)) {
        do {
            if (marks < 2 && read_if(in, "|")) {
                *(marks++ ? &k->period.end : &k->period.begin) = done;
                continue;
            }
            int lane = (int)read_integer(in, "the number of a lane", 0, k->nlanes - 1), run = 1;
            int left = first[lane + 1] - next[lane];
            const char *at = in->p;
            if (read_if(in, "*"))
                run = (int)read_integer(in, "how often the lane occurs", 1, INT32_MAX);
            if (run > left)
                FAIL(in, at, "lane %d has only %d instructions", lane, first[lane + 1] - first[lane]);
            for (; run > 0; run--, done++) {
                k->ins[done] = old[next[lane]];
                in->ins_line[done] = old_line[next[lane]++];
            }
        } while (read_if(in, " "));
        read_end(in);
    }
    for (int l = 0; l < k->nlanes; l++)
        if (next[l] < first[l + 1])
            FAIL(in, in->p, "the issue order lacks %d instructions of lane %d", first[l + 1] - next[l], l);
    if (marks < 2)
        FAIL(in, in->p, "the issue order has %d of the two | around the period", marks);
    k->nins = done;
}

/* Returns the slot of the map that holds the instruction of this label, or where it belongs. */
static uint32_t find_label(const struct rank *k, const struct map *map, const struct instr *i) {
    bool job = is_job(i->op); /* its version is not part of its label */
    uint64_t h = hash_add(hash_add(hash_add(hash_add(0, i->op), i->stage), i->batch), job ? -1 : i->inst);
    h = hash_add(hash_add(h, i->peer), i->part);
    uint32_t at = map_start(map, h);
    for (int32_t x; (x = map->slot[at] - 1) >= 0; at = map_next(map, at)) {
        const struct instr *o = &k->ins[x];
        if (o->op == i->op && o->stage == i->stage && o->batch == i->batch && (job || o->inst == i->inst) &&
            o->peer == i->peer && o->part == i->part && o->last == i->last)
            break;
    }
    return at;
}

/* Moves the reader back into the middle of an earlier line. */
static void go_to(struct reader *in, int line, const char *p) {
    in->line = line;
    in->p = in->start = p;
    while (in->start > in->src && in->start[-1] != '\n')
        in->start--;
}

static void resolve_waits(struct reader *in) {
    struct rank *k = in->k;
    struct map labels = map_new((size_t)k->nins);
    struct text t = {0};
    for (int i = 0; i < k->nins; i++) {
        uint32_t at = find_label(k, &labels, &k->ins[i]);
        if (labels.slot[at]) {
            put_label(&t, &in->prog->names, &k->ins[i]);
            int a = in->ins_line[i], b = in->ins_line[labels.slot[at] - 1];
            die_at(in->file, in->src, a > b ? a : b, 1, "rank %d has %s twice; the other is on line %d", in->r, t.s,
                   a > b ? b : a);
        }
        labels.slot[at] = i + 1;
    }
    k->wait = NEW(int32_t, k->nwaits);
    struct reader there = *in;
    for (int i = 0; i < k->nins; i++)
        for (uint32_t w = k->ins[i].wait; w < k->ins[i].wait + k->ins[i].nwait; w++) {
            there.p = there.start = in->wait_at[w];
            struct instr other = read_label(&there);
            k->wait[w] = labels.slot[find_label(k, &labels, &other)] - 1;
            if (k->wait[w] >= 0 && k->ins[k->wait[w]].lane != k->ins[i].lane)
                continue;
            put_label(&t, &in->prog->names, &other);
            go_to(&there, in->ins_line[i], in->wait_at[w]);
            if (k->wait[w] < 0)
                FAIL(&there, there.p, "rank %d has no instruction %s", in->r, t.s);
            FAIL(&there, there.p, "%s is in the same lane, whose order needs no wait", t.s);
        }
}

/* ---- ranks ---- */

/* Reads "rank R" and a space; dies on another rank or the end of the file. */
static void rank_header(struct reader *in) {
    const char *at = in->p;
    if (!read_if(in, "rank ") || read_integer(in, "a rank", 0, INT32_MAX) != in->r || !read_if(in, " ")) {
        in->p = at;
        FAIL(in, at, "expected \"rank %d\": its lanes, issue and memory", in->r);
    }
}

/* Moves to the rank's memory section; returns the number of non-header lines before it. */
static int skip_to_memory(struct reader *in) {
    int n = 0;
    while (*in->p) {
        if (!strncmp(in->p, "rank ", 5)) {
            rank_header(in);
            if (read_if(in, "memory "))
                return n;
        } else
            n++;
        in->p += strcspn(in->p, "\n");
        read_end(in);
    }
    FAIL(in, in->p, "the file ends before rank %d's memory section", in->r);
}

static void read_rank(struct reader *in) {
    struct rank *k = in->k = &in->prog->rank[in->r];
    struct reader after = *in;
    int lines = skip_to_memory(&after);
    read_memory(&after);
    in->bufs = after.bufs;
    in->cap_arg = in->cap_wait = in->cap_free = in->cap_lane = 0;
    in->wait_at = NULL;
    k->ins = NEW(struct instr, lines);
    in->ins_line = NEW(int32_t, lines);
    struct instr *ins = NEW(struct instr, lines);
    int32_t *line = NEW(int32_t, lines), *first = NULL;
    size_t cap_first = 0;
    int n = 0;
    for (rank_header(in); read_if(in, "lane "); rank_header(in)) {
        lane_header(in);
        if (in->k->nlanes > 1 && (!*in->p || !strncmp(in->p, "rank ", 5)))
            die_at(in->file, in->src, in->line - 1, 1, "a lane without instructions: leave it out");
        GROW(first, cap_first, (size_t)k->nlanes + 1);
        first[k->nlanes - 1] = n;
        for (; *in->p && strncmp(in->p, "rank ", 5); n++) {
            line[n] = in->line;
            ins[n] = instruction(in, k->nlanes - 1);
        }
        first[k->nlanes] = n;
    }
    if (!k->nlanes)
        FAIL(in, in->p, "expected \"lane compute\", the rank's first section");
    read_word(in, "issue");
    read_end(in);
    read_issue(in, ins, line, first);
    rank_header(in);
    read_word(in, "memory ");
    resolve_waits(in);
    in->p = after.p;
    in->start = after.start;
    in->line = after.line;
}

struct program *read_text(const char *file, const char *src) {
    struct reader in = {.file = file, .src = src, .p = src, .start = src, .line = 1};
    struct program *p = in.prog = NEW(struct program, 1);
    read_head(&in);
    for (in.r = 0; in.r < p->workers; in.r++) {
        read_rank(&in);
        p->rank[in.r].line = in.ins_line;
    }
    if (*in.p)
        FAIL(&in, in.p, "expected the end of the file after rank %d's memory", p->workers - 1);
    number_messages(p, true); /* verify refutes messages without a partner */
    return p;
}
