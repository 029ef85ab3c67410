#include "dump.h"
#include <inttypes.h>
#include <stdlib.h>
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

static void dump_buffer(FILE *f, const struct rt_buffer *b) {
    if (b)
        fprintf(f, " %" PRId64 ":%" PRId64, b->off, b->bytes);
    else
        fprintf(f, " -");
}

static void dump_list(FILE *f, const char *what, const struct rt_buffer *const *list) {
    fprintf(f, " %s", what);
    for (; list && *list; list++)
        dump_buffer(f, *list);
}

static void dump_instr(FILE *f, const struct rt_rank *k, const struct rt_instr *x) {
    fprintf(f, "%d %s stage %d batch %d lane %d peer %d group %d root %d msg %d bytes %" PRId64, (int)(x - k->ins),
            x->op < NOPS ? op_row(x->op)->name : "?", x->stage, x->batch, x->lane, x->peer, x->group, x->root, x->msg,
            x->bytes);
    fprintf(f, " layers %d %d sweep %d first %d %d %d at", x->from, x->to, x->sweep, x->first, x->vfirst, x->ufirst);
    for (int r = 0; r < NROLES; r++)
        dump_buffer(f, operand_in(x, r));
    dump_list(f, "more", x->more);
    dump_list(f, "kv", x->kv);
    fprintf(f, " after");
    for (int32_t n = 0, i; (i = wait_of(k, x, n)) >= 0; n++)
        fprintf(f, " %d", i);
    fprintf(f, " name %d\n", x->name);
}

void dump(FILE *f, const struct rt_program *p) {
    struct rt_rank indexed = *p->rank, *k = &indexed;
    int32_t *memory = calloc(rank_index_size(k), sizeof *memory);
    rank_index(k, memory);
    fprintf(f, "hash %016" PRIx64 "\n", p->hash);
    fprintf(f,
            "%s rank %d workers %d stages %d updated %d batches %d messages %d lanes %d arena %" PRId64 " host %" PRId64
            " begin %d end %d period %d repeats %" PRId64 " workspace",
            p->name, k->number, p->workers, p->stages, p->updated, p->batches, p->nmsgs, k->nlanes, k->arena, k->host,
            k->begin, k->end, p->period, p->repeats);
    dump_buffer(f, k->work);
    fprintf(f, "\n");
    dump_model(f, p->model);
    for (int s = 0; s < p->sets; s++)
        dump_stage(f, &p->stage[s], s);
    for (int i = 0; i < p->stages * p->model->slices; i++)
        dump_stage(f, &p->slice[i], i);
    for (int i = 0; i < k->nins; i++)
        dump_instr(f, k, &k->ins[i]);
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
    free(memory);
}
