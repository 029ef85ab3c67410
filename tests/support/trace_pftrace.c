/* Reads Perfetto's protobuf by field numbers, which are repeated here independently. */
#include "trace_reader.h"
#include "base/text.h"
#include <criterion/criterion.h>
#include <string.h>

/* ---- the wire format ---- */

struct field {
    int number, type;
    uint64_t value; /* value of a varint or fixed64, else the number of bytes */
    const unsigned char *bytes;
};

struct cursor {
    const unsigned char *p, *end;
};

static uint64_t varint(struct cursor *c) {
    uint64_t v = 0;
    for (int shift = 0;; shift += 7) {
        cr_assert(c->p < c->end && shift < 64, "a number without an end");
        v |= (uint64_t)(*c->p & 127) << shift;
        if (!(*c->p++ & 128))
            return v;
    }
}

static bool next_field(struct cursor *c, struct field *f) {
    if (c->p == c->end)
        return false;
    uint64_t key = varint(c);
    *f = (struct field){(int)(key >> 3), (int)(key & 7), 0, NULL};
    if (f->type == 0)
        f->value = varint(c);
    else if (f->type == 1) {
        cr_assert(c->end - c->p >= 8);
        for (int i = 0; i < 8; i++)
            f->value |= (uint64_t)*c->p++ << 8 * i;
    } else {
        cr_assert_eq(f->type, 2, "wire type %d", f->type);
        f->value = varint(c);
        cr_assert_leq(f->value, (uint64_t)(c->end - c->p), "a part longer than the whole");
        f->bytes = c->p;
        c->p += f->value;
    }
    return true;
}

static struct cursor inside(const struct field *f) { return (struct cursor){f->bytes, f->bytes + f->value}; }

static void text_of(const struct field *f, char *out, size_t size) {
    cr_assert(f->type == 2 && f->value < size);
    memcpy(out, f->bytes, f->value);
    out[f->value] = 0;
}

/* ---- packets ---- */

struct reader {
    struct seen seen;
    struct { /* tracks, by uuid */
        char name[64], rank[64];
        int64_t order; /* among its siblings */
        uint64_t parent;
        int track, open[4], nopen; /* track: index in seen; open: the slices open on it */
        bool known, counter, process;
    } uuid[4096];
    bool begun[100000];
};

static void read_process(struct reader *z, uint64_t id, const struct field *process) {
    struct cursor in = inside(process);
    int64_t pid = 0;
    for (struct field f; next_field(&in, &f);)
        if (f.number == 1)
            pid = (int64_t)f.value;
        else if (f.number == 6)
            text_of(&f, z->uuid[id].rank, 64);
    cr_assert(pid > 0);
    z->uuid[id].process = true;
}

static void read_descriptor(struct reader *z, struct cursor in) {
    uint64_t id = 0, children = 0, processes = 0;
    struct field f, process = {0};
    char name[64] = "";
    int64_t order = -1;
    bool counter = false;
    uint64_t parent = 0;
    while (next_field(&in, &f))
        switch (f.number) {
        case 1: id = f.value; break;
        case 2: text_of(&f, name, sizeof name); break;
        case 3: process = f; break;
        case 5: parent = f.value; break;
        case 8: counter = true; break;
        case 11: children = f.value; break;
        case 12: order = (int64_t)f.value; break;
        case 19: processes = f.value; break;
        default: cr_assert_fail("TrackDescriptor has no field %d here", f.number);
        }
    cr_assert(id < 4096 && !z->uuid[id].known, "track %llu twice", (unsigned long long)id);
    z->uuid[id].known = true;
    z->uuid[id].order = order;
    z->uuid[id].parent = parent;
    z->uuid[id].counter = counter;
    if (id == 0) {
        cr_assert_eq(processes, 1, "the root says that ranks stand as ordered");
        return;
    }
    cr_assert_geq(order, 0);
    if (process.bytes) {
        cr_assert_eq(children, 3, "a rank says that its lanes stand as ordered");
        read_process(z, id, &process);
        return;
    }
    cr_assert(z->uuid[parent].process, "a lane belongs to a rank");
    memcpy(z->uuid[id].name, name, 64);
    memcpy(z->uuid[id].rank, z->uuid[parent].rank, 64);
    for (uint64_t other = 1; other < id; other++)
        cr_assert(!z->uuid[other].known || z->uuid[other].process || z->uuid[other].parent != parent ||
                      z->uuid[other].order != order,
                  "two lanes in one place");
    if (counter)
        return;
    z->uuid[id].track = (int)z->seen.ntracks;
    struct seen_track *t = &z->seen.track[z->seen.ntracks++];
    memcpy(t->name, name, 64);
    memcpy(t->rank, z->uuid[id].rank, 64);
}

static void read_annotation(struct seen_slice *s, struct cursor in) {
    char name[16] = "";
    int64_t value = -1;
    for (struct field f; next_field(&in, &f);)
        if (f.number == 10)
            text_of(&f, name, sizeof name);
        else if (f.number == 4)
            value = (int64_t)f.value;
    int64_t *to = !strcmp(name, "stage")     ? &s->stage
                  : !strcmp(name, "step")    ? &s->step
                  : !strcmp(name, "mb")      ? &s->mb
                  : !strcmp(name, "peer")    ? &s->peer
                  : !strcmp(name, "update")  ? &s->update
                  : !strcmp(name, "version") ? &s->version
                                             : &s->bytes;
    cr_assert_eq(*to, -1, "%s twice", name);
    *to = value;
}

static void read_event(struct reader *z, int64_t t, struct cursor in) {
    struct seen_slice s = {
        .t = t, .step = -1, .stage = -1, .mb = -1, .peer = -1, .bytes = -1, .update = -1, .version = -1};
    uint64_t type = 0, id = 0, correlation = UINT64_MAX, counter = 0;
    for (struct field f; next_field(&in, &f);)
        switch (f.number) {
        case 4: read_annotation(&s, inside(&f)); break;
        case 9: type = f.value; break;
        case 11: id = f.value; break;
        case 22: text_of(&f, s.category, sizeof s.category); break;
        case 23: text_of(&f, s.name, sizeof s.name); break;
        case 30: counter = f.value; break;
        case 47:
        case 48:
            cr_assert_eq(f.type, 1, "flow ids are fixed64");
            *(f.number == 47 ? &s.flow_out : &s.flow_in) = (int64_t)f.value;
            break;
        case 52: correlation = f.value; break;
        default: cr_assert_fail("TrackEvent has no field %d here", f.number);
        }
    cr_assert(id < 4096 && z->uuid[id].known && z->uuid[id].process == (type == 3), "an event on no track of its kind");
    int *open = z->uuid[id].open, *n = &z->uuid[id].nopen;
    if (type == 1) {
        cr_assert_eq(correlation, s.mb < 0 ? UINT64_MAX : (uint64_t)s.mb, "microbatch %lld's own colour",
                     (long long)s.mb);
        cr_assert(s.flow_in == 0 || z->begun[s.flow_in], "a flow ends before it begins");
        cr_assert(s.flow_out == 0 || !z->begun[s.flow_out], "a flow begins twice");
        z->begun[s.flow_out] = true;
        s.track = z->uuid[id].track;
        cr_assert_lt(*n, 4);
        open[(*n)++] = (int)z->seen.nslices;
        z->seen.slice[z->seen.nslices++] = s;
    } else if (type == 2) {
        cr_assert_gt(*n, 0, "an end without a beginning");
        z->seen.slice[open[--*n]].end = t;
    } else if (type == 3) {
        struct seen_instant *x = &z->seen.instant[z->seen.ninstants++];
        memcpy(x->rank, z->uuid[id].rank, sizeof x->rank);
        memcpy(x->name, s.name, sizeof x->name);
        x->t = t;
    } else {
        cr_assert(type == 4 && z->uuid[id].counter);
        struct seen_level *l = &z->seen.level[z->seen.nlevels++];
        memcpy(l->rank, z->uuid[id].rank, sizeof l->rank);
        l->t = t;
        l->bytes = (int64_t)counter;
    }
}

struct seen read_pftrace(const char *s, size_t n) {
    struct reader *z = NEW(struct reader, 1);
    struct cursor in = {(const unsigned char *)s, (const unsigned char *)s + n};
    z->seen.track = NEW(struct seen_track, n / 8);
    z->seen.slice = NEW(struct seen_slice, n / 8);
    z->seen.level = NEW(struct seen_level, n / 8);
    z->seen.instant = NEW(struct seen_instant, n / 8);
    for (struct field packet, f; next_field(&in, &packet);) {
        struct cursor fields = inside(&packet);
        int64_t t = -1, sequence = 0;
        cr_assert_eq(packet.number, 1);
        while (next_field(&fields, &f))
            if (f.number == 8)
                t = (int64_t)f.value;
            else if (f.number == 10)
                sequence = (int64_t)f.value;
            else if (f.number == 60)
                read_descriptor(z, inside(&f));
            else {
                cr_assert(f.number == 11 && t >= 0, "an event has its time before it, here");
                read_event(z, t, inside(&f));
            }
        cr_assert_gt(sequence, 0, "a packet belongs to a sequence");
    }
    for (int id = 0; id < 4096; id++)
        cr_assert_eq(z->uuid[id].nopen, 0, "a slice without an end");
    return z->seen;
}
