/* Breaks the places of buffers, waits and frees. */
#include "mutate_parts.h"

static const char *name_of(const struct buf *b) {
    struct text t = {0};
    put_buf(&t, NULL, b);
    return t.s;
}

static bool has_pieces(const struct program *p, const struct buf *like) {
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &p->rank[r];
        for (const struct arg *a = k->arg; a < k->arg + k->nargs; a++)
            if (a->last > 0 && k->buf[a->buf].kind == like->kind && k->buf[a->buf].stage == like->stage)
                return true;
    }
    return false;
}

/* Gives all buffers of a kind and stage one byte more or less, or all of one name, or all tokens, no bytes. */
static const char *resize(struct place *m, const struct buf *b, enum mutation how) {
    struct buf like = *b;
    bool tokens = how == MUT_NO_BYTES && draw(m, 2);
    int by = draw(m, 2) ? 1 : -1, n = 0;
    if (how == MUT_NO_BYTES && !tokens && has_pieces(m->p, &like))
        return NULL; /* the judges use one cell for no bytes, so its pieces would coincide */
    for (int r = 0; r < m->p->workers; r++)
        for (struct buf *x = m->p->rank[r].buf; x < m->p->rank[r].buf + m->p->rank[r].nbufs; x++) {
            if (tokens
                    ? x->kind != K_token
                    : x->kind != like.kind || x->stage != like.stage || (how == MUT_NO_BYTES && x->batch != like.batch))
                continue;
            int64_t to = how == MUT_NO_BYTES ? 0 : x->bytes + by;
            n += to != x->bytes && to >= 0;
            x->bytes = to < 0 ? 0 : to;
        }
    return n ? format("%s, %d of them", tokens ? "tokens" : name_of(&like), n) : NULL;
}

static const char *rename_buffer(struct place *m, struct buf *b) {
    const char *old = name_of(b);
    int n = draw(m, 3), to;
    if (n == 0 && b->batch >= 0 && (to = draw(m, m->p->batches)) != b->batch)
        b->batch = to;
    else if (n == 1 && b->stage >= 0 && (to = draw(m, m->p->stages)) != b->stage)
        b->stage = to;
    else if (n == 2 && (to = draw(m, 3) - 1) != b->inst)
        b->inst = to;
    else
        return NULL;
    return format("%s to %s", old, name_of(b));
}

static const char *other_growth(struct place *m, struct buf *b) {
    int32_t to = draw(m, 2) ? -1 : draw(m, m->k->nbufs);
    if (b->kind != K_stash || to == b->grows)
        return NULL;
    b->grows = to;
    return name_of(b);
}

const char *mutate_memory(struct place *m, enum mutation how) {
    struct rank *k = m->k;
    struct buf *b = &k->buf[draw(m, k->nbufs)], *o = &k->buf[draw(m, k->nbufs)];
    struct text name = {0};
    put_buf(&name, NULL, b);
    int64_t *arena = arena_of_buffer(k, b), by, old = b->off;
    switch (how) {
    case MUT_OFFSET_ONE:
    case MUT_OFFSET_SIZE:
        by = how == MUT_OFFSET_ONE ? 1 : b->bytes;
        b->off += draw(m, 2) || b->off < by ? by : -by;
        if (draw(m, 2) && b->off + b->bytes > *arena) /* sometimes only where there is room */
            *arena = b->off + b->bytes;
        break;
    case MUT_OFFSET_OTHER:
        if (o->off == old)
            return NULL;
        b->off = o->off;
        break;
    case MUT_OFFSET_SWAP:
        if (o->off == old)
            return NULL;
        put(&name, " and ");
        put_buf(&name, NULL, o);
        b->off = o->off;
        o->off = old;
        break;
    case MUT_BYTES:
        b->bytes += draw(m, 2) || !b->bytes ? 1 : -1;
        return format("%s has %lld bytes", name.s, (long long)b->bytes);
    case MUT_BYTES_EVERYWHERE:
    case MUT_NO_BYTES: return resize(m, b, how);
    case MUT_RENAME_BUFFER: return rename_buffer(m, b);
    case MUT_OTHER_GROWTH: return other_growth(m, b);
    default:
        if (!*arena)
            return NULL;
        by = draw(m, 2) ? 1 : 1 + draw(m, (int)*arena);
        *arena -= by;
        return format("by %lld", (long long)by);
    }
    return format("%s from %lld to %lld", name.s, (long long)old, (long long)b->off);
}

static const char *drop_record(struct place *m) {
    struct rank *k = m->k;
    int n = 0;
    for (int i = 0; i < k->nins; i++)
        for (int w = k->ins[i].nwait - 1; w >= 0; w--)
            if (k->wait[k->ins[i].wait + (uint32_t)w] == m->i) {
                drop_wait(k, &k->ins[i], w);
                n++;
            }
    return n ? format("%d waits", n) : NULL;
}

static int neighbour(const struct rank *k, int i, int step) {
    int j = i + step;
    while (j >= 0 && j < k->nins && k->ins[j].lane != k->ins[i].lane)
        j += step;
    return j >= 0 && j < k->nins ? j : -1;
}

/* Drops every fourth wait of the rank. */
static const char *drop_some(struct place *m) {
    int n = 0;
    for (int i = 0; i < m->k->nins; i++)
        for (int w = m->k->ins[i].nwait - 1; w >= 0; w--)
            if (draw(m, 4) == 0) {
                drop_wait(m->k, &m->k->ins[i], w);
                n++;
            }
    return n ? format("%d waits", n) : NULL;
}

/* Draws another SEND of the rank before instruction i, or returns -1. */
static int draw_send(struct place *m) {
    int found = -1, n = 0;
    for (int i = 0; i < m->i; i++)
        if (op_lane[m->k->ins[i].op] == LANE_SEND && draw(m, ++n) == 0)
            found = i;
    return found;
}

const char *mutate_wait(struct place *m, enum mutation how) {
    struct rank *k = m->k;
    struct instr *x = m->x;
    bool drops = how != MUT_ADD_WAIT, moves = how == MUT_MOVE_WAIT,
         adds = !moves && how != MUT_DROP_WAIT && how != MUT_DROP_WAITS;
    if (how == MUT_DROP_RECORD)
        return drop_record(m);
    if (how == MUT_SPARSE_WAITS)
        return drop_some(m);
    if (drops && !x->nwait)
        return NULL;
    int n = x->nwait ? draw(m, x->nwait) : 0, next = neighbour(k, m->i, 1);
    int32_t old = drops ? k->wait[x->wait + (uint32_t)n] : -1;
    int32_t on = how == MUT_SEND_WAIT ? draw_send(m) : draw(m, k->nins);
    if (how == MUT_EARLIER_WAIT)
        on = neighbour(k, old, -1);
    if ((adds && (on < 0 || k->ins[on].lane == x->lane)) || (moves && next < 0))
        return NULL;
    if (how == MUT_DROP_WAITS)
        set_waits(k, x, NULL, 0);
    else if (drops)
        drop_wait(k, x, n);
    if (adds)
        add_wait(k, x, on);
    if (moves)
        add_wait(k, &k->ins[next], old);
    return format("%s%s%s%s", drops ? "not for " : "", drops ? label_of(k, old) : "", adds ? " but for " : "",
                  adds ? label_of(k, on) : "");
}

const char *mutate_free(struct place *m, enum mutation how) {
    struct rank *k = m->k;
    int n = m->x->nfree ? draw(m, m->x->nfree) : 0, to = draw(m, k->nins);
    if ((!m->x->nfree && how != MUT_ADD_FREE) || (how == MUT_MOVE_FREE && to == m->i))
        return NULL;
    bool drops = how != MUT_DOUBLE_FREE && how != MUT_ADD_FREE, other = how == MUT_OTHER_FREE || how == MUT_ADD_FREE;
    int32_t old = drops || !other ? k->freed[m->x->free + (uint32_t)n] : -1;
    int32_t buf = other ? draw(m, k->nbufs) : old;
    if (other && buf == old)
        return NULL;
    if (drops)
        drop_free(k, m->x, n);
    if (how != MUT_DROP_FREE)
        add_free(k, &k->ins[other ? m->i : to], buf);
    return format("%s%s", name_of(&k->buf[buf]),
                  other || how == MUT_DROP_FREE ? "" : format(" at %s", label_of(k, to)));
}
