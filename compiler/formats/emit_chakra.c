/* Writes a rank's part of a program as a Chakra execution trace, the input of the simulators ASTRA-sim and Multiverse:
 * a stream of protobuf messages, each after its length as a varint. Field numbers come from
 * schema/protobuf/et_def.proto of mlcommons/chakra, names of attributes from ASTRA-sim's feeder
 * (et_feeder_node_attr.h).
 *
 * A node is an instruction. It depends on the instruction before it in its lane (ctrl_deps), and on what it awaits in
 * other lanes (data_deps). A send and its receive have the same source, destination and tag. A collective's size is
 * each member's input. A node's duration, in whole microseconds, is by how much its prediction ends after the one
 * before it in its lane, so that two overlapped jobs take their time once. */
#include "formats.h"
#include "emit_trace.h"
#include "put_protobuf.h"
#include <math.h>

enum {
    METADATA_VERSION = 1,
    NODE_ID = 1,
    NODE_NAME = 2,
    NODE_TYPE = 3,
    NODE_CTRL_DEPS = 4,
    NODE_DATA_DEPS = 5,
    NODE_START = 6,
    NODE_DURATION = 7,
    NODE_ATTRIBUTE = 10,
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_INT64 = 9,
    ATTRIBUTE_UINT32 = 11,
    ATTRIBUTE_UINT64 = 13,
    ATTRIBUTE_BOOL = 27,
    ATTRIBUTE_STRING = 29,
};
enum { MEM_LOAD_NODE = 2, MEM_STORE_NODE, COMP_NODE, COMM_SEND_NODE, COMM_RECV_NODE, COMM_COLL_NODE };
enum { ALL_REDUCE, REDUCE, ALL_GATHER, BROADCAST = 5, ALL_TO_ALL, REDUCE_SCATTER };

struct writer {
    struct text *out, node, part, list; /* the last three are emptied after each use */
    const struct program *p;
    const struct timeline *timeline;
    double unit; /* microseconds */
    int r;
};

static void end_message(struct text *out, struct text *message) {
    put_varint(out, message->n);
    put_bytes(out, message->s, message->n);
    message->n = 0;
}

/* ---- attributes ---- */

static void end_attribute(struct writer *w) {
    put_submessage(&w->node, NODE_ATTRIBUTE, &w->part);
    w->part.n = 0;
}

static void put_integer(struct writer *w, const char *name, int type, uint64_t v) {
    put_field_text(&w->part, ATTRIBUTE_NAME, name);
    put_field_number(&w->part, type, v);
    end_attribute(w);
}

static int node_type(int op) {
    if (is_group(op))
        return COMM_COLL_NODE;
    if (is_copy(op))
        return op_row(op)->lane == LANE_OFFLOAD ? MEM_STORE_NODE : MEM_LOAD_NODE;
    return is_send(op) ? COMM_SEND_NODE : is_recv(op) ? COMM_RECV_NODE : COMP_NODE;
}

static int collective_type(int op) {
    switch (op) {
    case OP_ALL_GATHER:
    case OP_ALL_GATHER_A: return ALL_GATHER;
    case OP_BROADCAST: return BROADCAST;
    case OP_REDUCE_SCATTER:
    case OP_REDUCE_SCATTER_A: return REDUCE_SCATTER;
    case OP_REDUCE: return REDUCE;
    case OP_ALL_TO_ALL_A: return ALL_TO_ALL;
    default: return ALL_REDUCE;
    }
}

static void put_group_attributes(struct writer *w, const struct rank *k, const struct instr *x) {
    int group = k->lane[x->lane].group, type = collective_type(x->op);
    int64_t pieces = type == REDUCE_SCATTER ? w->p->group[group].n : 1; /* the smallest operand is the result */
    put_integer(w, "comm_type", ATTRIBUTE_INT64, (uint64_t)type);
    put_integer(w, "comm_size", ATTRIBUTE_UINT64, (uint64_t)(moved_bytes(k, x) * pieces));
    if (x->peer >= 0)
        put_integer(w, type == BROADCAST ? "comm_src" : "comm_dst", ATTRIBUTE_UINT32, (uint64_t)x->peer);
    put_field_text(&w->part, ATTRIBUTE_NAME, "pg_name");
    put_field_text(&w->part, ATTRIBUTE_STRING, format("%d", group + 1));
    end_attribute(w);
}

static void put_attributes(struct writer *w, const struct rank *k, const struct instr *x) {
    put_integer(w, "is_cpu_op", ATTRIBUTE_BOOL, false);
    if (is_copy(x->op))
        put_integer(w, "tensor_size", ATTRIBUTE_UINT64, (uint64_t)moved_bytes(k, x));
    else if (is_group(x->op))
        put_group_attributes(w, k, x);
    else if (is_message(x->op)) {
        put_integer(w, "comm_src", ATTRIBUTE_UINT32, (uint64_t)(is_send(x->op) ? w->r : x->peer));
        put_integer(w, "comm_dst", ATTRIBUTE_UINT32, (uint64_t)(is_send(x->op) ? x->peer : w->r));
        put_integer(w, "comm_size", ATTRIBUTE_UINT64, (uint64_t)moved_bytes(k, x));
        put_integer(w, "comm_tag", ATTRIBUTE_UINT32, (uint64_t)x->msg);
    }
}

/* ---- nodes ---- */

static void put_dependencies(struct writer *w, int field) {
    if (w->list.n)
        put_submessage(&w->node, field, &w->list);
    w->list.n = 0;
}

/* Writes an instruction. last: each lane's last instruction before it, -1: none; joined: each lane's last instruction
 * before the lanes joined, which is a dependency until a lane has gone on; NULL: they did not. */
static void put_node(struct writer *w, const struct rank *k, int32_t i, const int32_t *last, const int32_t *joined) {
    const struct instr *x = &k->ins[i];
    const double *start = w->timeline->start[w->r], *end = w->timeline->end[w->r];
    int32_t before = last[x->lane];
    double from = before >= 0 ? fmax(start[i], end[before]) : start[i];
    put_field_number(&w->node, NODE_ID, (uint64_t)i);
    put_field_text(&w->node, NODE_NAME, short_name(&w->p->names, x));
    put_field_number(&w->node, NODE_TYPE, (uint64_t)node_type(x->op));
    if (joined && before == joined[x->lane]) {
        for (int l = 0; l < k->nlanes; l++)
            if (joined[l] >= 0)
                put_varint(&w->list, (uint64_t)joined[l]);
    } else if (before >= 0)
        put_varint(&w->list, (uint64_t)before);
    put_dependencies(w, NODE_CTRL_DEPS);
    for (uint32_t a = x->wait; a < x->wait + x->nwait; a++)
        put_varint(&w->list, (uint64_t)k->wait[a]);
    put_dependencies(w, NODE_DATA_DEPS);
    put_field_number(&w->node, NODE_START, (uint64_t)llround(start[i] * w->unit));
    put_field_number(&w->node, NODE_DURATION,
                     (uint64_t)(end[i] > from ? llround(end[i] * w->unit) - llround(from * w->unit) : 0));
    put_attributes(w, k, x);
    end_message(w->out, &w->node);
}

void emit_chakra(struct text *out, const struct program *p, const struct timeline *timeline, const char *unit, int r) {
    const struct rank *k = &p->rank[r];
    const struct steps steps = {.n = 1, .of = timeline};
    struct writer w = {.out = out, .p = p, .timeline = timeline, .unit = trace_unit(unit, &steps) / 1000, .r = r};
    int32_t *last = NEW(int32_t, k->nlanes), *joined = NEW(int32_t, k->nlanes);
    bool has_joined = false;
    for (int l = 0; l < k->nlanes; l++)
        last[l] = -1;
    put_field_text(&w.node, METADATA_VERSION, "0.0.4");
    end_message(out, &w.node);
    for (int32_t i = 0, join = 0; i < k->nins; i++) {
        for (; join < joins_of(p) && join_at(p, k, join) == i; join++) {
            has_joined = true;
            for (int l = 0; l < k->nlanes; l++)
                joined[l] = last[l];
        }
        put_node(&w, k, i, last, has_joined ? joined : NULL);
        last[k->ins[i].lane] = i;
    }
}

void emit_chakra_groups(struct text *out, const struct program *p) {
    put_word(out, "{");
    for (int g = 0; g < p->ngroups; g++) {
        put(out, "%s\n  \"%d\": [", g ? "," : "", g + 1);
        for (int i = 0; i < p->group[g].n; i++)
            put(out, "%s%d", i ? ", " : "", p->group[g].rank[i]);
        put_word(out, "]");
    }
    put_word(out, p->ngroups ? "\n}\n" : "}\n");
}
