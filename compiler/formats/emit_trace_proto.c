/* Writes timelines as a Perfetto trace: TrackEvents in protobuf, encoded by hand.
 *
 * Unlike the JSON, it sets the order of tracks and gives each microbatch one colour (correlation_id); it is a third of
 * the size. Field numbers come from protos/perfetto/trace/ in Perfetto's sources. */
#include "emit_trace.h"
#include "put_protobuf.h"
#include <math.h>

enum {
    TRACE_PACKET = 1,
    PACKET_TIMESTAMP = 8,
    PACKET_SEQUENCE = 10,
    PACKET_EVENT = 11,
    PACKET_DESCRIPTOR = 60,
    TRACK_UUID = 1, /* fields of TrackDescriptor */
    TRACK_NAME = 2,
    TRACK_PROCESS = 3,
    TRACK_PARENT = 5,
    TRACK_COUNTER = 8,
    TRACK_CHILD_ORDERING = 11,
    TRACK_SIBLING_ORDER = 12,
    TRACK_PROCESS_ORDERING = 19,
    PROCESS_PID = 1, /* fields of ProcessDescriptor */
    PROCESS_NAME = 6,
    COUNTER_UNIT = 3, /* fields of CounterDescriptor */
    EVENT_ANNOTATION = 4,
    EVENT_TYPE = 9,
    EVENT_TRACK = 11,
    EVENT_CATEGORY = 22,
    EVENT_NAME = 23,
    EVENT_COUNTER_VALUE = 30,
    EVENT_FLOW = 47, /* fixed64 */
    EVENT_FLOW_ENDS = 48,
    EVENT_CORRELATION = 52,
    ANNOTATION_INT = 4, /* fields of DebugAnnotation */
    ANNOTATION_NAME = 10,
};
enum { SLICE_BEGIN = 1, SLICE_END = 2, INSTANT = 3, COUNTER = 4 }; /* values of TrackEvent.Type */
enum { EXPLICIT_CHILDREN = 3, EXPLICIT_PROCESSES = 1, UNIT_BYTES = 3 };

/* ---- packets: built in these buffers, emptied after each use ---- */

struct writer {
    struct text *out, packet, part, inner;
};

static void end_packet(struct writer *writer, int what) {
    put_field_number(&writer->packet, PACKET_SEQUENCE, 1);
    put_submessage(&writer->packet, what, &writer->part);
    put_submessage(writer->out, TRACE_PACKET, &writer->packet);
    writer->packet.n = writer->part.n = 0;
}

/* Describes a rank's tracks: a process track, its memory track, then its lanes' tracks. Track 0 is the root. */
static void describe_rank(struct writer *writer, const struct program *p, uint64_t id, int r, int digits) {
    const struct rank *k = &p->rank[r];
    struct text name = {0};
    put_field_number(&writer->part, TRACK_UUID, id);
    put_field_number(&writer->inner, PROCESS_PID, (uint64_t)r + 1);
    put_field_text(&writer->inner, PROCESS_NAME, format("rank %0*d", digits, r));
    put_submessage(&writer->part, TRACK_PROCESS, &writer->inner);
    put_field_number(&writer->part, TRACK_CHILD_ORDERING, EXPLICIT_CHILDREN);
    put_field_number(&writer->part, TRACK_SIBLING_ORDER, (uint64_t)r);
    end_packet(writer, PACKET_DESCRIPTOR);
    writer->inner.n = 0;
    for (int l = -1; l < k->nlanes; l++, name.n = 0) { /* memory is shown below the lanes */
        put_field_number(&writer->part, TRACK_UUID, id + 2 + (uint64_t)l);
        put_field_number(&writer->part, TRACK_PARENT, id);
        if (l < 0) {
            put_field_number(&writer->inner, COUNTER_UNIT, UNIT_BYTES);
            put_submessage(&writer->part, TRACK_COUNTER, &writer->inner);
            writer->inner.n = 0;
            put(&name, "memory");
        } else
            put_lane(&name, p, &k->lane[l]);
        put_submessage(&writer->part, TRACK_NAME, &name);
        put_field_number(&writer->part, TRACK_SIBLING_ORDER, (uint64_t)(l < 0 ? k->nlanes : l));
        end_packet(writer, PACKET_DESCRIPTOR);
    }
}

static void annotate(struct writer *writer, const char *name, int64_t v) {
    put_field_text(&writer->inner, ANNOTATION_NAME, name);
    put_field_number(&writer->inner, ANNOTATION_INT, (uint64_t)v);
    put_submessage(&writer->part, EVENT_ANNOTATION, &writer->inner);
    writer->inner.n = 0;
}

/* Begins a slice. step: its step's number, or 0; base: added to the step's message numbers */
static void begin_slice(struct writer *writer, const struct names *names, const struct rank *k, const struct instr *in,
                        int step, uint64_t base) {
    put_slice_name(&writer->inner, names, in);
    put_submessage(&writer->part, EVENT_NAME, &writer->inner);
    writer->inner.n = 0;
    put_field_text(&writer->part, EVENT_CATEGORY, slice_category(in));
    annotate(writer, "stage", in->stage);
    if (step)
        annotate(writer, "step", step);
    if (in->batch >= 0)
        annotate(writer, in->op == OP_U ? "update" : "mb", in->op == OP_U ? in->batch : in->batch / slices_of(names));
    if (in->batch >= 0 && in->op != OP_U && names->slices)
        annotate(writer, "slice", in->batch % names->slices);
    if (in->batch >= 0 && in->op != OP_U) {
        put_field_number(&writer->part, EVENT_CORRELATION, (uint64_t)in->batch);
    }
    if (is_job(in->op) && in->inst >= 0)
        annotate(writer, "version", in->inst);
    if (in->peer >= 0)
        annotate(writer, "peer", in->peer);
    if (payload(k, in))
        annotate(writer, "bytes", moved_bytes(k, in));
    if (sends_message(in) || receives_message(in))
        put_fixed64(&writer->part, sends_message(in) ? EVENT_FLOW : EVENT_FLOW_ENDS, base + (uint64_t)in->msg + 1);
}

static void put_track_event(struct writer *writer, int64_t t, int type, uint64_t track) {
    put_field_number(&writer->packet, PACKET_TIMESTAMP, (uint64_t)t);
    put_field_number(&writer->part, EVENT_TYPE, (uint64_t)type);
    put_field_number(&writer->part, EVENT_TRACK, track);
    end_packet(writer, PACKET_EVENT);
}

/* Writes marks on the rank's process track. */
static void put_join_events(struct writer *writer, const struct trace *trace, const struct program *p,
                            const struct steps *steps, int r, uint64_t track) {
    for (int k = 0; k < steps->n; k++) {
        const double *join = join_times(p, &steps->of[k], r);
        for (int i = 0; i < joins_of(p); i++) {
            put_field_text(&writer->part, EVENT_NAME, join_name(p, i));
            put_field_text(&writer->part, EVENT_CATEGORY, "period");
            put_track_event(writer, llround(join[i] * trace->unit_ns), INSTANT, track);
        }
    }
}

void emit_pftrace(struct text *out, const struct program *p, const struct steps *steps, const char *unit) {
    const struct trace *trace = trace_make(p, steps, unit);
    uint64_t *id = NEW(uint64_t, p->workers), next = 1;
    struct writer writer = {.out = out};
    put_field_number(&writer.part, TRACK_UUID, 0);
    put_field_number(&writer.part, TRACK_PROCESS_ORDERING, EXPLICIT_PROCESSES);
    end_packet(&writer, PACKET_DESCRIPTOR);
    for (int r = 0; r < p->workers; r++) {
        id[r] = next;
        next += 2 + (uint64_t)p->rank[r].nlanes;
        describe_rank(&writer, p, id[r], r, snprintf(NULL, 0, "%d", p->workers - 1));
    }
    for (const struct mark *mark = trace->mark; mark < trace->mark + trace->nmarks; mark++) {
        const struct rank *k = &p->rank[mark->rank];
        const struct instr *in = &k->ins[mark->ins];
        if (mark->what != ENDS)
            begin_slice(&writer, &p->names, k, in, steps->number ? steps->number[mark->step] : 0,
                        (uint64_t)mark->step * (uint64_t)p->nmsgs);
        put_track_event(&writer, mark->t, mark->what == ENDS ? SLICE_END : SLICE_BEGIN, id[mark->rank] + 2 + in->lane);
    }
    for (int r = 0; r < p->workers; r++)
        put_join_events(&writer, trace, p, steps, r, id[r]);
    for (int r = 0; r < p->workers; r++)
        for (int i = 0; i < trace->nlevels[r]; i++) {
            put_field_number(&writer.part, EVENT_COUNTER_VALUE, (uint64_t)trace->memory[r][i].bytes);
            put_track_event(&writer, trace->memory[r][i].t, COUNTER, id[r] + 1);
        }
}
