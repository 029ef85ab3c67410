#include "dump.h"
#include <inttypes.h>
#include <string.h>

static void dump_bits(FILE *f, float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    fprintf(f, " %08" PRIx32, bits);
}

static void dump_model(FILE *f, const struct rt_model *m) {
    fprintf(f,
            "model input %d rows %d context %d vocab %d features %d batches %d precision %d update %d slices %d output "
            "%d\n",
            m->input, m->rows, m->context, m->vocab, m->features, m->batches, m->precision, m->update, m->slices,
            m->output);
    fprintf(f, "optimizer %d", m->optimizer);
#define X(name) fprintf(f, " " #name), dump_bits(f, m->name);
    RATES(X)
#undef X
#define X(name) fprintf(f, " " #name " %d", m->name);
    COUNTS(X)
#undef X
    fprintf(f, "\n");
}

static void dump_layer(FILE *f, const struct rt_layer *l) {
    const struct slot slot[] = {l->x, l->y, l->aux, l->dy, l->dx, l->tmp};
    fprintf(
        f,
        "    kind %d rows %d in %d out %d heads %d context %d kv_heads %d rope %d unbiased %d index %d param %" PRId64
        " nparam %" PRId64,
        l->kind, l->rows, l->in, l->out, l->heads, l->context, l->kv_heads, l->rope, l->unbiased, l->index, l->param,
        l->nparam);
    fprintf(f, " share %d %d %d %d %d %d", l->share.split, l->share.member, l->share.members, l->share.group[0],
            l->share.group[1], l->share.group[2]);
    for (int i = 0; i < 6; i++)
        fprintf(f, " %d:%" PRId64, slot[i].space, slot[i].off);
    fprintf(f, " slice %d %d %" PRId64 " rows out %d set %d part %d %d %d", l->first, l->length, l->kv, l->out_rows,
            l->set, l->part.member, l->part.members, l->part.context);
    fprintf(f, " experts %d %d %d", l->experts, l->top, l->capacity);
    dump_bits(f, l->balance);
    fprintf(f, " number"), dump_bits(f, l->number);
    fprintf(f, " scaling %d", l->scaling.context);
    dump_bits(f, l->scaling.factor), dump_bits(f, l->scaling.low), dump_bits(f, l->scaling.high);
    fprintf(f, "\n");
}

static void dump_stage(FILE *f, const struct rt_stage *s, int number) {
    fprintf(f, "stage %d layers %d act %" PRId64 " grad %" PRId64 " stash %" PRId64 " ext %" PRId64, number, s->nlayers,
            s->act, s->grad, s->stash, s->ext);
    fprintf(f, " input %" PRId64 " weight %" PRId64 " opt %" PRId64 " work %" PRId64 " update %d is %d %d %d\n",
            s->input, s->weight, s->opt, s->work, s->update, s->number, s->place, s->members);
    for (int i = 0; i < s->nlayers; i++)
        dump_layer(f, &s->layer[i]);
}

static void dump_instr(FILE *f, const struct rt_instr *x, int number, const int32_t *wait, const int64_t *more) {
    static const char *const op[] = {
#define X(name, ...) #name,
        OPS(X)
#undef X
    };
    fprintf(f, "%d %s first %d %d %d recorded %d lane %d stage %d batch %d peer %d msg %d root %d bytes %" PRId64 " at",
            number, x->op < NOPS ? op[x->op] : "?", x->first, x->vfirst, x->ufirst, x->recorded, x->lane, x->stage,
            x->batch, x->peer, x->msg, x->root, x->bytes);
    for (int r = 0; r < NROLES; r++)
        fprintf(f, " %" PRId64, x->at[r]);
    fprintf(f, " layers %d %d sweep %d more", x->from, x->to, x->sweep);
    for (int i = 0; i < x->nmore + x->nkv; i++)
        fprintf(f, " %" PRId64, more[x->more + i]);
    fprintf(f, " after");
    for (int i = 0; i < x->nwait; i++)
        fprintf(f, " %d", wait[x->wait + i]);
    fprintf(f, "\n");
}

void dump(FILE *f, const struct rt_program *p) {
    const struct rt_rank *k = p->rank;
    fprintf(f, "hash %016" PRIx64 "\n", p->hash);
    fprintf(f,
            "%s rank %d workers %d stages %d updated %d batches %d messages %d lanes %d arena %" PRId64 " host %" PRId64
            " work %" PRId64 " begin %d end %d period %d repeats %" PRId64 "\n",
            p->name, k->number, p->workers, p->stages, p->updated, p->batches, p->nmsgs, k->nlanes, k->arena, k->host,
            k->work, k->begin, k->end, p->period, p->repeats);
    dump_model(f, p->model);
    for (int s = 0; s < p->sets; s++)
        dump_stage(f, &p->stage[s], s);
    for (int i = 0; i < p->stages * p->model->slices; i++)
        dump_stage(f, &p->slice[i], i);
    for (int i = 0; i < k->nins; i++)
        dump_instr(f, &k->ins[i], i, k->wait, k->more);
    for (int l = 0; l < k->nlanes; l++)
        fprintf(f, "lane %s\n", k->lane[l]);
    for (const int32_t *g = p->groups; *g >= 0; g++) {
        fprintf(f, "group");
        for (; *g >= 0; g++)
            fprintf(f, " %d", *g);
        fprintf(f, "\n");
    }
    for (const struct rt_home *h = k->home; h < k->home + k->nhomes; h++)
        fprintf(f,
                "home %d memory %d weight %" PRId64 " opt %" PRId64 " first %" PRId64 " count %" PRId64 " own %" PRId64
                " owned %" PRId64 "\n",
                h->stage, h->memory, h->weight, h->opt, h->first, h->count, h->own, h->owned);
}
