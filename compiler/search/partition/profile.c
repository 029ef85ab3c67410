#include "base/heap.h"
#include "base/map.h"
#include "partition.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An iterator over a file's lines, with the context that error messages need */
struct lines {
    const char *name, *text, *end, *at; /* at: where the line begins */
    int line;
    struct map ids; /* the layers by their ids */
};

#define fail(lines, where, ...)                                                                                        \
    die_at((lines)->name, (lines)->text, (lines)->line, (int)((where) - (lines)->at) + 1, __VA_ARGS__)

static bool next_line(struct lines *lines) {
    if (!lines->line++)
        lines->at = lines->text;
    else
        lines->at += strcspn(lines->at, "\n") + 1;
    return lines->at < lines->end;
}

static bool is_blank(const char *s) { return s[strspn(s, " \t")] == '\n' || !s[strspn(s, " \t")]; }

/* Returns the text from s up to " -- " or the end of the line. *rest: what follows, NULL at the end of the line. */
static const char *cell(const char *s, const char **rest) {
    size_t n = strcspn(s, "\n");
    const char *dashes = strstr(s, " -- ");
    bool found = dashes && (size_t)(dashes - s) < n;
    *rest = found ? dashes + 4 : NULL;
    n = found ? (size_t)(dashes - s) : n;
    while (n > 0 && s[n - 1] == ' ')
        n--;
    return format("%.*s", (int)n, s);
}

static double figure(const struct lines *lines, const char *s, const char **end) {
    char *to;
    double x = strtod(s, &to);
    if (to == s || !(x >= 0 && x <= 1e100)) /* so that no sum or product of them is infinite */
        fail(lines, s, "expected a number from 0 to 1e100 here, in milliseconds or in bytes");
    *end = to;
    return x;
}

/* Reads the sizes of a layer's outputs: a layer with several has a list, [4.0; 8.0]. */
static double read_output_sizes(const struct lines *lines, const char *s, const char **end) {
    double sum = 0;
    if (*s != '[')
        return figure(lines, s, end);
    for (*end = s; **end == '[' || **end == ';';)
        sum += figure(lines, *end + 1, end);
    if (**end != ']')
        fail(lines, *end, "expected ';' or ']' in this list of sizes");
    ++*end;
    return sum;
}

static void read_figures(const struct lines *lines, const char *s, struct profiled *layer) {
    static const char *const keys[] = {"forward_compute_time", "backward_compute_time", "activation_size",
                                       "parameter_size"};
    enum { KEYS = sizeof keys / sizeof *keys };
    double value[KEYS] = {NAN, NAN, NAN, NAN};
    for (;;) {
        size_t n = strcspn(s, "=,\n ");
        int k = 0;
        while (k < KEYS && (strlen(keys[k]) != n || strncmp(keys[k], s, n) != 0))
            k++;
        if (k == KEYS || s[n] != '=') {
            const char *near = nearest(format("%.*s", (int)n, s), keys, KEYS);
            fail(lines, s, "expected %s, as in forward_compute_time=1.5%s%s%s", k < KEYS ? "'=' and a number" : "a key",
                 near && k == KEYS ? "; did you mean '" : "", near && k == KEYS ? near : "",
                 near && k == KEYS ? "'?" : "");
        }
        value[k] = read_output_sizes(lines, s + n + 1, &s);
        if (*s != ',')
            break;
        s += 1 + strspn(s + 1, " ");
    }
    if (!is_blank(s) && strncmp(s, " -- ", 4) != 0)
        fail(lines, s, "expected ', ' and another figure, or the end of the line");
    for (int k = 0; k < KEYS; k++)
        if (isnan(value[k]))
            fail(lines, lines->at, "this layer has no %s", keys[k]);
    layer->forward = value[0] / 1000;
    layer->backward = value[1] / 1000;
    layer->output = layer->kept = value[2];
    layer->weights = value[3];
}

/* Returns the slot in the map where the layer of that id is, or belongs. */
static uint32_t layer_slot(const struct profile *p, const struct map *ids, const char *id) {
    uint64_t hash = 0;
    for (const char *c = id; *c; c++)
        hash = hash_add(hash, *c);
    uint32_t at = map_start(ids, hash);
    while (ids->slot[at] && strcmp(p->layer[ids->slot[at] - 1].id, id) != 0)
        at = map_next(ids, at);
    return at;
}

static void read_profile_layers(struct profile *p, struct lines lines) {
    size_t cap = 0;
    while (next_line(&lines)) {
        if (*lines.at == '\t' || *lines.at == '#' || is_blank(lines.at))
            continue;
        const char *what, *figures;
        struct profiled layer = {.id = cell(lines.at, &what)};
        layer.what = what ? cell(what, &figures) : "";
        if (!what || !figures)
            fail(&lines, lines.at,
                 "expected a layer: node1 -- NAME -- forward_compute_time=..., backward_compute_time=..., "
                 "activation_size=..., parameter_size=...; an edge begins with a tab");
        int32_t *slot = &lines.ids.slot[layer_slot(p, &lines.ids, layer.id)];
        if (*slot)
            fail(&lines, lines.at, "there are two layers %s", layer.id);
        read_figures(&lines, figures, &layer);
        GROW(p->layer, cap, (size_t)p->nlayers + 1);
        p->layer[p->nlayers++] = layer;
        *slot = p->nlayers;
    }
    if (p->nlayers == 0)
        die("%s: has no layers; a profile is PipeDream's graph.txt, a line per layer: node1 -- NAME -- "
            "forward_compute_time=..., ...",
            p->name);
}

static void read_edges(struct profile *p, struct lines lines) {
    size_t cap = 0;
    while (next_line(&lines)) {
        if (*lines.at != '\t' || is_blank(lines.at))
            continue;
        const char *end[2] = {lines.at + 1, NULL}, *rest = NULL;
        int layer[2];
        for (int i = 0; i < 2; i++) {
            if (!end[i])
                fail(&lines, lines.at + 1, "expected an edge, such as node1 -- node2");
            const char *id = cell(end[i], &rest);
            layer[i] = lines.ids.slot[layer_slot(p, &lines.ids, id)] - 1;
            if (layer[i] < 0)
                fail(&lines, end[i], "there is no layer %s", id);
            if (i == 0)
                end[1] = rest;
        }
        if (layer[0] == layer[1])
            fail(&lines, lines.at + 1, "this edge leads from a layer to itself");
        GROW(p->edge, cap, (size_t)p->nedges + 1);
        p->edge[p->nedges++] = (struct edge){layer[0], layer[1]};
    }
}

/* Returns, per layer, whether an edge ends (or begins) there. */
static bool *have_edges(const struct profile *p, bool ends) {
    bool *have = NEW(bool, p->nlayers);
    for (int i = 0; i < p->nedges; i++)
        have[ends ? p->edge[i].to : p->edge[i].from] = true;
    return have;
}

/* Renumbers the layers, dropping some with their edges. to: the new numbers; -1: dropped. */
static void renumber(struct profile *p, const int *to) {
    struct profiled *layer = NEW(struct profiled, p->nlayers);
    int nlayers = 0, nedges = 0;
    for (int i = 0; i < p->nlayers; i++)
        if (to[i] >= 0) {
            layer[to[i]] = p->layer[i];
            nlayers++;
        }
    for (int i = 0; i < p->nedges; i++) {
        struct edge edge = {to[p->edge[i].from], to[p->edge[i].to]};
        if (edge.from >= 0 && edge.to >= 0)
            p->edge[nedges++] = edge;
    }
    p->layer = layer;
    p->nlayers = nlayers;
    p->nedges = nedges;
}

static void leave_out(struct profile *p, const char *what, bool source) {
    int *to = NEW(int, p->nlayers), n = 0;
    const bool *stays = have_edges(p, source);
    for (int i = 0; i < p->nlayers; i++)
        to[i] = strncmp(p->layer[i].what, what, strlen(what)) == 0 && !stays[i] ? -1 : n++;
    if (n == 0)
        die("%s: all its layers are called %s", p->name, what);
    renumber(p, to);
}

/* Edges by the layer they begin at: layer l's lead to to[at[l] .. at[l + 1]) */
struct ways {
    int *at, *to;
};

static struct ways ways_of(const struct profile *p) {
    struct ways ways = {NEW(int, p->nlayers + 2), NEW(int, p->nedges)};
    for (int i = 0; i < p->nedges; i++)
        ways.at[p->edge[i].from + 2]++;
    for (int l = 0; l < p->nlayers; l++)
        ways.at[l + 2] += ways.at[l + 1];
    for (int i = 0; i < p->nedges; i++)
        ways.to[ways.at[p->edge[i].from + 1]++] = p->edge[i].to;
    return ways;
}

static inline bool comes_first(int a, int b) { return a < b; }
HEAP(ready, int, comes_first)

static _Noreturn void refuse_cycle(const struct profile *p, const int *to) {
    int on = 0;
    while (to[on] >= 0)
        on++;
    die("%s: its edges make a cycle, and layer %s is on it or after it", p->name, p->layer[on].id);
}

/* Sorts each layer after its predecessors; ties keep the order of the file. */
static void sort_layers(struct profile *p) {
    int *to = NEW(int, p->nlayers), *before = NEW(int, p->nlayers);
    struct ways ways = ways_of(p);
    struct ready ready = {0};
    for (int i = 0; i < p->nedges; i++)
        before[p->edge[i].to]++;
    for (int i = 0; i < p->nlayers; i++) {
        to[i] = -1;
        if (!before[i])
            ready_push(&ready, i);
    }
    for (int n = 0; n < p->nlayers; n++) {
        if (!ready.n)
            refuse_cycle(p, to);
        int next = ready_pop(&ready);
        to[next] = n;
        for (int i = ways.at[next]; i < ways.at[next + 1]; i++)
            if (--before[ways.to[i]] == 0)
                ready_push(&ready, ways.to[i]);
    }
    renumber(p, to);
}

static size_t count_lines(const char *text) {
    size_t n = 1;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

struct profile *read_profile(const char *name, const char *text) {
    struct profile *p = NEW(struct profile, 1);
    struct lines lines = {.name = name, .text = text, .end = text + strlen(text), .ids = map_new(count_lines(text))};
    p->name = name;
    read_profile_layers(p, lines);
    read_edges(p, lines);
    leave_out(p, "Input", true);
    leave_out(p, "__getitem__", false);
    sort_layers(p);
    return p;
}
