/* Asserts what each pass promises to later passes, where it hands its work over. verify makes the proof; these
 * assertions catch a fault where the pass makes it, and name the broken promise. */
#include "cost.h"
#include "passes.h"
#include <assert.h>

/* Asserts that a slot lies in its space, within the bytes planned for it. */
static void promise_slot(const struct rt_stage *s, struct slot slot) {
    const int64_t bytes[] = {[SP_STASH] = s->stash, [SP_EXT] = s->ext, [SP_WORK] = s->work};
    bool counted = slot.space == SP_STASH || slot.space == SP_EXT || slot.space == SP_WORK;
    assert(slot.space == SP_NONE || slot.off >= 0);
    assert(!counted || slot.off <= bytes[slot.space]);
}

static void promise_layers(const struct rt_model *m, const struct rt_stage *s) {
    for (const struct rt_layer *l = s->layer; l < s->layer + s->nlayers; l++) {
        assert(l->kind >= 0 && l->kind < NLAYERS && l->rows > 0 && l->nparam >= 0);
        assert(l->set != SET_OWN || l->nparam == 0 || l->param % TENSOR_ALIGN == 0);
        assert(l->set != SET_OWN || l->param + l->nparam * precision_bytes(m->precision) <= s->weight);
        assert(l->share.members == 0 || (l->share.member >= 0 && l->share.member < l->share.members));
        promise_slot(s, l->x);
        promise_slot(s, l->y);
        promise_slot(s, l->aux);
        promise_slot(s, l->dx);
        promise_slot(s, l->dy);
        promise_slot(s, l->tmp);
    }
}

static void promise_stages(const struct costs *costs) {
    const struct spec *sp = costs->spec;
    const struct stage *st = costs->stage;
    for (int s = 0; s < sp->stages; s++) {
        for (int d = 0; d < NDIRS; d++) {
            assert(st[s].cost[d] >= 0 || sp->machine.took); /* NAN: not measured, and no job has it */
            for (int i = 0; i < st[s].nstops[d]; i++)
                assert(st[s].stop[d][i].bytes >= 0 && st[s].stop[d][i].layer < st[s].rt.nlayers);
        }
        for (int kind = 0; kind < NKINDS; kind++)
            assert(st[s].bytes[kind] >= 0);
        assert(!st[s].cut || (st[s].cut[0] == st[s].rt.nlayers && st[s].cut[st[s].parts] == 0));
        for (int p = 0; st[s].cut && p < st[s].parts; p++)
            assert(st[s].cut[p] >= st[s].cut[p + 1]);
        if (sp->model)
            promise_layers(&sp->model->rt, &st[s].rt);
    }
    for (int32_t j = 0; j < costs->njobs; j++)
        assert(costs->computes[j] >= 0 && costs->job[j].rank >= 0 && costs->job[j].rank < sp->workers);
}

static void promise_graph(const struct spec *sp, const struct graph *graph) {
    assert(graph->n == sp->njobs && graph->pred_at[0] == 0 && graph->succ_at[0] == 0);
    for (int32_t j = 0; j < graph->n; j++) {
        assert(graph->pred_at[j] <= graph->pred_at[j + 1] && graph->succ_at[j] <= graph->succ_at[j + 1]);
        for (int32_t e = graph->succ_at[j]; e < graph->succ_at[j + 1]; e++) {
            int32_t to = graph->succ[e], same = graph->succ_edge[e]; /* each edge is listed from both its ends */
            assert(same >= graph->pred_at[to] && same < graph->pred_at[to + 1] && graph->pred[same] == j);
        }
        for (int32_t e = graph->pred_at[j]; e < graph->pred_at[j + 1]; e++)
            assert(graph->pred[e] >= 0 && graph->pred[e] < graph->n && graph->kind[e] < NKINDS);
    }
    assert(graph->succ_at[graph->n] == graph->pred_at[graph->n]);
}

/* Asserts that a rank's jobs run one after the other, except that the two of a pair run together. */
static void promise_order(const struct costs *costs, const struct sched *sc, int r) {
    for (int i = 0; i < sc->norder[r]; i++) {
        int32_t j = sc->order[r][i];
        assert(costs->job[j].rank == r);
        assert(i == 0 || sc->start[j] >= sc->start[sc->order[r][i - 1]]);
    }
}

static void promise_sched(const struct costs *costs, const struct graph *graph, const struct sched *sc) {
    const struct spec *sp = costs->spec;
    int64_t ordered = 0;
    for (int r = 0; r < sp->workers; r++) {
        promise_order(costs, sc, r);
        ordered += sc->norder[r];
    }
    assert(ordered == sc->nstarts && sc->nstarts >= sp->njobs && sc->nmoments == 2 * sc->nstarts);
    for (int32_t j = 0; j < sp->njobs; j++) {
        assert(sc->start[j] >= 0 && sc->start[j] <= sc->end[j] && sc->end[j] <= sc->makespan);
        for (int32_t e = graph->pred_at[j]; e < graph->pred_at[j + 1]; e++)
            assert(sc->start[j] >= sc->end[graph->pred[e]]);
    }
    assert(!sc->period || (sc->repeats >= 1 && sc->begin <= sc->finish && sc->finish <= sc->nmoments));
    assert(!sp->updates.every == !sc->version);
}

/* Returns the stride between the ranks whose streams are checked: 1 in a small program, more in a large one, whose
 * ranks are much alike. So a check costs less than a hundredth of the pass that it checks. */
static int stride_of(const struct program *p) {
    enum { ENOUGH = 1 << 12 }; /* instructions */
    int64_t all = 0;
    for (int r = 0; r < p->workers; r++)
        all += p->rank[r].nins;
    return (int)(all / ENOUGH) + 1;
}

static void promise_operands(const struct rank *k, const struct instr *x) {
    assert(x->arg + x->narg <= k->nargs && x->free + x->nfree <= k->nfrees);
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        const struct arg *arg = &k->arg[a];
        assert(arg->buf >= 0 && arg->buf < k->nbufs && arg->piece <= arg->last);
        assert(op_access(x->op, (int)arg->role)); /* the table of instructions has this operand */
        assert(arg->last == 0 || k->buf[arg->buf].bytes % pieces_of(arg) == 0);
    }
    for (uint32_t f = x->free; f < x->free + x->nfree; f++)
        assert(k->freed[f] >= 0 && k->freed[f] < k->nbufs);
}

static void promise_buffers(const struct rank *k, int sets) {
    for (int b = 0; b < k->nbufs; b++) {
        const struct buf *buf = &k->buf[b];
        assert(buf->kind < NKINDS && buf->bytes >= 0 && buf->stage < sets);
        assert(buf->grows < k->nbufs && (buf->grows < 0 || memory_of(buf) == memory_of(&k->buf[buf->grows])));
    }
    for (size_t e = 0; e < k->nevents; e++)
        assert((k->event[e] < 0 ? ~k->event[e] : k->event[e]) < k->nbufs);
}

static void promise_streams(const struct program *p) {
    for (int r = 0, stride = stride_of(p); r < p->workers; r += stride) {
        const struct rank *k = &p->rank[r];
        promise_buffers(k, sets_in(p));
        assert(k->nlanes > 0 && k->lane[0].kind == LANE_COMPUTE);
        assert(k->period.begin >= 0 && k->period.begin <= k->period.end && k->period.end <= k->nins &&
               (p->period || k->period.end == 0));
        assert(k->period.event_begin <= k->period.event_end && k->period.event_end <= k->nevents);
        for (int32_t i = 0; i < k->nins; i++) {
            const struct instr *x = &k->ins[i];
            assert(x->op < NOPS && x->lane < k->nlanes && lane_takes(k->lane[x->lane].kind, x->op));
            assert(x->stage < sets_in(p) && x->part <= x->last && x->peer < p->workers);
            assert(is_message(x->op) == (x->msg >= 0) && x->msg < p->nmsgs);
            promise_operands(k, x);
        }
        for (size_t o = 0; o < k->nordered; o++) {
            assert(k->ordered[o].after >= 0 && k->ordered[o].after < k->ordered[o].ins && k->ordered[o].ins < k->nins);
            assert(o == 0 || k->ordered[o - 1].ins <= k->ordered[o].ins);
        }
    }
    assert(p->period ? p->repeats >= 1 : p->repeats == 1);
}

static void promise_offsets(const struct spec *sp, const struct program *p) {
    const int64_t least = mem_room(sp, 1); /* the alignment of offsets, a power of 2 */
    for (int r = 0, stride = stride_of(p); r < p->workers; r += stride) {
        const struct rank *k = &p->rank[r];
        assert(k->least <= k->arena && k->base <= k->arena);
        for (int b = 0; b < k->nbufs; b++) {
            const struct buf *buf = &k->buf[b];
            int64_t arena = memory_of(buf) == MEMORY_HOST ? k->host : k->arena;
            assert(buf->off >= 0 && (buf->off & (least - 1)) == 0 && buf->off + grown_bytes(k, buf) <= arena);
            assert(buf->grows < 0 || k->buf[buf->grows].off == buf->off);
            assert(k->over_at[b] <= k->over_at[b + 1]);
        }
        for (int32_t o = 0; o < k->over_at[k->nbufs]; o++)
            assert(k->over[o] >= 0 && k->over[o] < k->nbufs);
    }
}

static void promise_waits(const struct program *p) {
    for (int r = 0, stride = stride_of(p); r < p->workers; r += stride) {
        const struct rank *k = &p->rank[r];
        for (int32_t i = 0; i < k->nins; i++) {
            const struct instr *x = &k->ins[i];
            assert(x->wait + x->nwait <= k->nwaits);
            for (uint32_t w = x->wait; w < x->wait + x->nwait; w++) {
                int32_t before = k->wait[w]; /* of another lane, since a lane is in order; and no wait crosses a join */
                assert(before >= 0 && before < i && k->ins[before].lane != x->lane);
                assert(!p->period || section_of(k, before) == section_of(k, i));
            }
        }
    }
}

static void promise_times(const struct program *p, const struct timeline *tl) {
    for (int r = 0, stride = stride_of(p); r < p->workers; r += stride) {
        const struct rank *k = &p->rank[r];
        struct scratch scratch = scratch_begin();
        double *begun = NEW(double, k->nlanes); /* per lane: start of its last instruction; the two of a pair overlap */
        for (int32_t i = 0; i < k->nins; i++) {
            const struct instr *x = &k->ins[i];
            double start = tl->start[r][i], end = tl->end[r][i];
            assert(start >= begun[x->lane] && end >= start && end <= tl->makespan);
            for (uint32_t w = x->wait; w < x->wait + x->nwait; w++)
                assert(start >= tl->end[r][k->wait[w]]);
            begun[x->lane] = start;
        }
        scratch_end(scratch);
    }
}

void passes_promise(const struct compile *c, int gives) {
    assert(!c->costs || c->costs->spec == c->spec);
    switch (gives) {
    case COSTS: promise_stages(c->costs); return;
    case GRAPH: promise_graph(c->spec, c->graph); return;
    case SCHED: promise_sched(c->costs, c->graph, c->sched); return;
    case STREAMS: promise_streams(c->program); return;
    case OFFSETS: promise_offsets(c->spec, c->program); return;
    case WAITS: promise_waits(c->program); return;
    case TIMES: promise_times(c->program, c->timeline);
    }
}
