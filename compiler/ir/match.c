/* Matches each SEND with its RECV, and the members of each collective.
 *
 * Both ends of a message agree on its kind, stage, microbatch, instance, source and destination, which identify it.
 * Messages are numbered by the rank of their SEND, then by its issue order. On one edge, RECVs nearly always come in
 * the order of the SENDs. So a RECV first tries the message after its lane's last match. Only if that fails do all
 * messages go into a hash table. The first rank of a group opens a REDUCE, and every other member is another end of the
 * same message. */
#include "base/map.h"
#include "program.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct message {
    int32_t rank, ins; /* its SEND, or the first member's REDUCE */
    int32_t next;      /* the next message on that lane, or -1 */
    int32_t left;      /* number of ends not found yet */
    int32_t last;      /* rank whose end was found last: each rank has at most one */
};

struct matching {
    struct program *p;
    struct message *message;
    int n;
    int32_t **first; /* per rank and lane: the first message opened there, or -1 */
    struct map map;
    bool mapped;
};

/* The fields that all ends of a message have in common. */
struct key {
    int32_t op, stage, batch, inst, from, to;
};

static const struct group *own_group(const struct program *p, int r, const struct instr *in) {
    return &p->group[p->rank[r].lane[in->lane].group];
}

const struct buf *payload(const struct rank *k, const struct instr *in) {
    return is_message(in->op) && in->narg ? &k->buf[k->arg[in->arg].buf] : NULL;
}

static bool opens(const struct program *p, int r, const struct instr *in) {
    return is_send(in->op) || (is_group(in->op) && own_group(p, r, in)->rank[0] == r);
}

static struct key match_key(const struct program *p, int r, const struct instr *in) {
    struct key key = {in->op, in->stage, in->batch, in->inst, r, in->peer};
    if (op_lane[in->op] == LANE_TEAM && p->names.member) /* each member has a stage of its own */
        key.stage = p->names.member[in->stage].stage;
    if (is_group(in->op))
        key.from = p->rank[r].lane[in->lane].group; /* to is the root */
    if (is_recv(in->op))
        key = (struct key){op_row(in->op)->partner, in->stage, in->batch, in->inst, in->peer, r};
    return key;
}

static uint64_t hash_key(const struct key *key) {
    uint64_t h = hash_add(hash_add(hash_add(0, key->op), key->stage), key->batch);
    return hash_add(hash_add(hash_add(h, key->inst), key->from), key->to);
}

/* Numbers the messages by their opening instructions, and chains each lane's. */
static void open_messages(struct matching *matching) {
    struct program *p = matching->p;
    for (int r = 0; r < p->workers; r++)
        for (int i = 0; i < p->rank[r].nins; i++)
            matching->n += opens(p, r, &p->rank[r].ins[i]);
    matching->message = NEW(struct message, matching->n);
    matching->first = NEW(int32_t *, p->workers);
    matching->n = 0;
    for (int r = 0; r < p->workers; r++) {
        struct rank *k = &p->rank[r];
        matching->first[r] = NEW(int32_t, k->nlanes);
        int32_t *last = NEW(int32_t, k->nlanes);
        memset(matching->first[r], -1, sizeof(int32_t) * (size_t)k->nlanes);
        for (int i = 0; i < k->nins; i++) {
            struct instr *in = &k->ins[i];
            in->msg = -1;
            if (!opens(p, r, in))
                continue;
            int left = is_group(in->op) ? own_group(p, r, in)->n - 1 : 1;
            matching->message[matching->n] = (struct message){r, i, -1, left, -1};
            if (matching->first[r][in->lane] < 0)
                matching->first[r][in->lane] = matching->n;
            else
                matching->message[last[in->lane]].next = matching->n;
            last[in->lane] = in->msg = matching->n++;
        }
    }
}

/* Returns the first message that lane `lane` of rank r may receive; -1 if it has several senders, or none is found. */
static int32_t first_arrival(const struct matching *matching, int r, const struct lane *lane) {
    struct lane want = *lane;
    int from = lane->peer;
    if (lanekind_row(lane->kind)->of == OF_GROUP)
        from = matching->p->group[lane->group].rank[0];
    else if (lane->kind == LANE_RECV)
        want = (struct lane){LANE_SEND, r, -1};
    else if (lane->kind == LANE_PEER)
        want.peer = r;
    else
        return -1;
    const struct rank *k = &matching->p->rank[from];
    const struct lane *at = bsearch(&want, k->lane, (size_t)k->nlanes, sizeof want, compare_lanes);
    return at ? matching->first[from][at - k->lane] : -1;
}

/* Returns whether an end of rank r with this key may join message i. */
static bool may_join(const struct matching *matching, int32_t i, int r, const struct key *key) {
    const struct message *message = &matching->message[i];
    struct key k = match_key(matching->p, message->rank, &matching->p->rank[message->rank].ins[message->ins]);
    return message->last != r && !memcmp(&k, key, sizeof k);
}

static int32_t find_message(struct matching *matching, int r, const struct key *key) {
    uint32_t at;
    if (!matching->mapped) {
        matching->map = map_new((size_t)matching->n);
        matching->mapped = true;
        for (int32_t i = 0; i < matching->n; i++) {
            struct key k = match_key(matching->p, matching->message[i].rank,
                                     &matching->p->rank[matching->message[i].rank].ins[matching->message[i].ins]);
            at = map_start(&matching->map, hash_key(&k));
            while (matching->map.slot[at])
                at = map_next(&matching->map, at);
            matching->map.slot[at] = i + 1;
        }
    }
    int32_t i;
    for (at = map_start(&matching->map, hash_key(key)); (i = matching->map.slot[at] - 1) >= 0;
         at = map_next(&matching->map, at))
        if (may_join(matching, i, r, key))
            return i;
    return -1;
}

/* Matches every instruction of rank r that does not open a message. */
static void match_rank(struct matching *matching, int r) {
    struct rank *k = &matching->p->rank[r];
    int32_t *next = NEW(int32_t, k->nlanes);
    for (int l = 0; l < k->nlanes; l++)
        next[l] = first_arrival(matching, r, &k->lane[l]);
    for (int i = 0; i < k->nins; i++) {
        struct instr *in = &k->ins[i];
        if (!is_message(in->op) || opens(matching->p, r, in))
            continue;
        struct key key = match_key(matching->p, r, in);
        int32_t g = next[in->lane];
        if (g < 0 || !may_join(matching, g, r, &key))
            g = find_message(matching, r, &key);
        if (g < 0)
            continue;
        in->msg = g;
        matching->message[g].left--;
        matching->message[g].last = r;
        next[in->lane] = matching->message[g].next;
    }
}

static char *no_partner(const struct program *p, int r, const struct instr *in) {
    struct text t = {0};
    put_label(&t, &p->names, in);
    put(&t, " on rank %d, lane ", r);
    put_lane(&t, p, &p->rank[r].lane[in->lane]);
    if (is_group(in->op)) {
        put(&t, ", is missing on another rank of its group");
    } else {
        struct instr other = *in;
        other.op = op_row(in->op)->partner;
        other.peer = r;
        put(&t, ", has no partner: rank %d has no ", in->peer);
        put_label(&t, &p->names, &other);
    }
    return t.s;
}

char *number_messages(struct program *p, bool lenient) {
    struct matching matching = {.p = p};
    struct scratch scratch = scratch_begin();
    char *why = NULL;
    open_messages(&matching);
    p->nmsgs = matching.n;
    for (int r = 0; r < p->workers; r++)
        match_rank(&matching, r);
    for (int i = 0; i < matching.n; i++)
        if (matching.message[i].left > 0)
            p->rank[matching.message[i].rank].ins[matching.message[i].ins].msg = -1;
    for (int r = 0; r < p->workers && !why; r++)
        for (int i = 0; i < p->rank[r].nins && !why; i++)
            if (is_message(p->rank[r].ins[i].op) && p->rank[r].ins[i].msg < 0)
                why = no_partner(p, r, &p->rank[r].ins[i]);
    assert(lenient || !why);
    if (!why)
        scratch_end(scratch);
    return why;
}
