/* Checks which bytes of its stage's gradient each part of a backward contributes.
 *
 * The program states this once per stage and direction, like the exchanges of teams. Parts run their layers from the
 * last to the first, so each part's bytes must end where the bytes of the part before begin. The first part's bytes end
 * at the gradient's end and the last part's begin at 0, so each byte comes once. A part names exactly the pieces that
 * its bytes lie in. A piece is half made until the last part that names it has run (verify_sums.c). So whatever reduces
 * it or updates by it comes after all parts that contribute to it.
 *
 * If the model is known, its layers give what each part contributes. A text may have no `parts` lines at all; if it has
 * one, it needs them for all jobs in parts. */
#include "check.h"

static bool has_layers(const struct check *check, int s) {
    return check->costs->stage && check->costs->stage[s].rt.nlayers > 0;
}

/* Returns the bytes of the gradient of a layer's own parameters; from == to: none. */
static struct byte_range range_of_layer(const struct check *check, const struct stage *st, const struct rt_layer *l) {
    int64_t element = precision_bytes(check->sp->model->rt.precision),
            each = own_parameters(l) ? st->bytes[K_wgrad] / (st->bytes[K_weight] / element) : 0,
            first = l->param / element;
    return (struct byte_range){first * each, (first + own_parameters(l)) * each};
}

/* Returns whether each layer's bytes are among the bytes of the part that runs it. */
static bool are_of_layers(struct check *check, int s, int d) {
    const struct stage *st = &check->costs->stage[s];
    const struct ranges *ranges = &check->p->contributed[(int64_t)s * NDIRS + d];
    int parts = st->nstops[d] ? st->nstops[d] + 1 : st->parts;
    if (ranges->n && ranges->n != parts)
        return refute_all(check, CLAIM_JOBS, "`parts` gives %s of stage %s %d parts; its layers make %d", op_name[d],
                          stage_text(check, s), ranges->n, parts);
    for (int part = 0; part < ranges->n; part++) {
        struct layer_span span =
            layers_of(st, &(struct instr){.op = (uint8_t)d, .part = (uint8_t)part, .last = (uint8_t)(parts - 1)});
        for (int32_t l = span.weights_from; l < span.weights_to; l++) {
            struct byte_range has = range_of_layer(check, st, &st->rt.layer[l]), said = ranges->at[part];
            if (has.from < has.to && (has.from < said.from || has.to > said.to))
                return refute_all(check, CLAIM_GRADIENTS,
                                  "part %d of %s of stage %s has layer %d, which contributes bytes %lld to %lld of the "
                                  "gradient, but `parts` says otherwise",
                                  part, op_name[d], stage_text(check, s), l, (long long)has.from,
                                  (long long)has.to - 1);
        }
    }
    return true;
}

bool ranges_begin(struct check *check) {
    for (int s = 0; s < check->p->stages && check->p->contributed; s++)
        for (int d = OP_B; d <= OP_W; d++)
            if (has_layers(check, s) && !are_of_layers(check, s, d))
                return false;
    return true;
}

/* Refutes unless a part names exactly the pieces in which its bytes lie. */
static bool names_its_pieces(struct check *check, int r, int32_t i, const struct arg *dw, struct pieces named,
                             struct byte_range range) {
    int64_t piece = check->p->rank[r].buf[dw->buf].bytes / pieces_of(dw);
    if (!piece)
        return true;
    if (range.from == range.to)
        return named.high < 0 || refute(check, CLAIM_GRADIENTS, r, i,
                                        "names some of its gradient, but `parts` says that it contributes nothing");
    int64_t low = range.from / piece, high = (range.to - 1) / piece;
    return (named.low == low && named.high == high) ||
           refute(
               check, CLAIM_GRADIENTS, r, i,
               "`parts` says that it contributes bytes %lld to %lld, which lie in pieces %lld to %lld of %d; it names "
               "%s",
               (long long)range.from, (long long)range.to - 1, (long long)low, (long long)high, pieces_of(dw),
               named.high < 0 ? "none" : format("pieces %d to %d", named.low, named.high));
}

bool contributes(struct check *check, int r, int32_t i, const struct arg *dw, struct pieces named, int64_t *left) {
    const struct instr *x = &check->p->rank[r].ins[i];
    const struct ranges *ranges =
        check->p->contributed ? &check->p->contributed[(int64_t)x->stage * NDIRS + x->op] : &(struct ranges){0};
    if (!check->p->contributed && !has_layers(check, x->stage))
        return true;
    if (ranges->n != x->last + 1)
        return refute(check, CLAIM_GRADIENTS, r, i, "`parts` says what %d parts contribute; it has %d", ranges->n,
                      x->last + 1);
    struct byte_range range = ranges->at[x->part];
    if (range.from < range.to && range.to != *left)
        return refute(check, CLAIM_GRADIENTS, r, i,
                      "`parts` says that it contributes bytes %lld to %lld of its gradient; the parts before it leave "
                      "bytes 0 to %lld",
                      (long long)range.from, (long long)range.to - 1, (long long)*left - 1);
    *left = range.from < range.to ? range.from : *left;
    if (is_last_part(x) && *left)
        return refute(check, CLAIM_GRADIENTS, r, i, "`parts` says that no part contributes bytes 0 to %lld",
                      (long long)*left - 1);
    return names_its_pieces(check, r, i, dw, named, range);
}
