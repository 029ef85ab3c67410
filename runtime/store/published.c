#include "published.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the name of parameter number i: the i-th between semicolons, or the last. */
static const char *part_of_name(const char *name, int i, int *n) {
    for (; i > 0 && strchr(name, ';'); i--)
        name = strchr(name, ';') + 1;
    *n = (int)strcspn(name, ";");
    return name;
}

static const char *ending(const struct rt_layer *l, const struct rt_parameter *p) {
    if (rt_kind_of(l)->own_names)
        return p->name;
    return strcmp(p->name, "bias") == 0 || strcmp(p->name, "beta") == 0 ? "bias" : "weight";
}

/* A piece of a name, not ended by a zero. */
struct span {
    const char *at;
    int n;
};

/* Adds the name that one item of "before{one,…}after" stands for. Returns false if there is no room. */
static bool add_published_name(struct published *out, struct span before, struct span one, struct span after,
                               const char *end) {
    const char *heads = memchr(one.at, '~', (size_t)one.n);
    if (out->n == MOST_PUBLISHED)
        return false;
    char *name = out->part[out->n].name;
    out->part[out->n++].heads = heads ? atoi(heads + 1) : 0;
    one.n = heads ? (int)(heads - one.at) : one.n;
    const char *dot = before.n + one.n + after.n > 0 ? "." : "";
    return snprintf(name, MOST_NAME, "%.*s%.*s%.*s%s%s", before.n, before.at, one.n, one.at, after.n, after.at, dot,
                    end) < MOST_NAME;
}

bool published_names(const struct rt_model *m, const struct layer_parameter *of, bool gguf, struct published *out,
                     char *why, size_t nwhy) {
    const struct rt_layer *l = of->l;
    const struct rt_names *names = m->names ? &m->names[l->index] : NULL;
    const char *name = !names ? NULL : gguf ? names->gguf : names->hf, *end = ending(l, &of->whole);
    int n;
    out->n = 0;
    if (!name) {
        snprintf(why, nwhy, "layer %d: the model does not give its name in %s files; give the layer the field '%s'",
                 l->index, gguf ? "GGUF" : "safetensors", gguf ? "gguf" : "hf");
        return false;
    }
    name = part_of_name(name, of->i, &n);
    out->turned = l->kind == LAYER_linear && of->whole.ndims == 2 && *name != '=';
    if (*name == '=') {
        name++;
        n--;
    }
    const char *open = memchr(name, '{', (size_t)n),
               *close = open ? memchr(open, '}', (size_t)(name + n - open)) : NULL;
    const struct span none = {"", 0}, before = {name, open ? (int)(open - name) : n};
    bool ok = close || add_published_name(out, (struct span){name, n}, none, none, end);
    for (const char *one = close ? open + 1 : NULL; ok && one && one <= close;) {
        const struct span this = {one, (int)strcspn(one, ",}")}, after = {close + 1, (int)(name + n - close - 1)};
        ok = add_published_name(out, before, this, after, end);
        one += this.n + 1;
    }
    if (!ok)
        snprintf(why, nwhy, "layer %d: its name is too long, or lists more than %d tensors", l->index, MOST_PUBLISHED);
    return ok;
}
