/* Differences between a model and a file's information on its model: see import.h. */
#include "import.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

struct compared {
    const char *from;
    const struct rt_layer *l;
    char *what;
    size_t nwhat;
};

/* Reports a number that differs. name: the layer's field in a script. */
static bool differs(const struct compared *of, const char *name, const char *meaning, double there, double here) {
    if (isnan(there) || fabs(there - here) <= 1e-6 * fabs(there))
        return false;
    snprintf(of->what, of->nwhat, "%s says %.7g for %s, but layer %d has %s = %.7g: the file belongs to another model",
             of->from, there, meaning, of->l->index, name, here);
    return true;
}

static bool scaling_differs(const struct compared *of, const struct named_said *said) {
    const struct attention_config *here = &of->l->config.attention;
    double factor = here->rope_factor > 0 ? (double)here->rope_factor : 1;
    if (!said->scaling[0])
        return false;
    if (strcmp(said->scaling, "none") == 0)
        return differs(of, "rope_factor", "the factor of rope's scaling", 1, factor);
    bool linear = strcmp(said->scaling, "linear") == 0, llama3 = strcmp(said->scaling, "llama3") == 0;
    if (!linear && !llama3) {
        snprintf(of->what, of->nwhat, "%s says that its rope is scaled (%s), which layer %d cannot do", of->from,
                 said->scaling, of->l->index);
        return true;
    }
    return differs(of, "rope_factor", "the factor of rope's scaling", said->factor, factor) ||
           differs(of, "rope_context", "the context of rope's scaling", linear ? 0 : said->context,
                   here->rope_context) ||
           (llama3 &&
            (differs(of, "rope_low", "the low factor of rope's scaling", said->low, (double)here->rope_low) ||
             differs(of, "rope_high", "the high factor of rope's scaling", said->high, (double)here->rope_high)));
}

bool import_differs(struct named_file *file, const char *from, const struct named_said *said, const struct rt_stage *s,
                    char *what, size_t nwhat) {
    bool divided = named_find(file, "rope_freqs.weight"); /* import_check compares the divisors */
    for (const struct rt_layer *l = s->layer; l < s->layer + s->nlayers; l++) {
        const struct compared of = {from, l, what, nwhat};
        if ((l->kind == LAYER_rmsnorm || l->kind == LAYER_layernorm) &&
            differs(&of, "eps", "the number that norms add to a variance", said->eps, (double)l->config.norm.eps))
            return true;
        if (l->kind == LAYER_attention &&
            (differs(&of, "dim", "the columns of a head", said->head, head_columns(l)) ||
             differs(&of, "rope", "the base of rope", said->rope, l->config.attention.rope) ||
             (!divided && scaling_differs(&of, said))))
            return true;
    }
    return false;
}
