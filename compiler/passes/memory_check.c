/* Refuses a plan that exceeds the memory of a rank's device or host, and says what would make it smaller. */
#include "passes.h"
#include <string.h>

#define BEYOND " more than the cluster's "
bool is_beyond_memory(const char *error) {
    return strstr(error, BEYOND "memory") || strstr(error, BEYOND "host_memory");
}

/* Sums a rank's bytes by kind of tensor, over the buffers that no event opens: they stay for the whole step. */
static void sum_permanent(const struct rank *k, int64_t sum[NKINDS]) {
    bool *opens = NEW(bool, k->nbufs);
    for (size_t i = 0; i < k->nevents; i++)
        if (k->event[i] >= 0) {
            opens[k->event[i]] = true;
            if (k->buf[k->event[i]].grows >= 0)
                opens[k->buf[k->event[i]].grows] = true;
        }
    memset(sum, 0, sizeof *sum * NKINDS);
    for (int i = 0; i < k->nbufs; i++)
        if (!opens[i] && memory_of(&k->buf[i]) == MEMORY_DEVICE)
            sum[k->buf[i].kind] += k->buf[i].bytes;
}

/* Returns " (-D name=value)" if the model's script has that parameter, or else "". */
static const char *by_parameter(const struct spec *sp, const char *name, const char *value) {
    for (size_t i = 0; i < sp->declared.nparams; i++)
        if (strcmp(sp->declared.param[i].script, "model") == 0 && strcmp(sp->declared.param[i].name, name) == 0)
            return format(" (-D %s=%s)", name, value);
    return "";
}

/* Returns the remedies that this compile does not use yet, cheapest first. */
static const char *remedies(const struct spec *sp) {
    const struct model *m = sp->model;
    struct text t = {0};
    if (m)
        put(&t, "smaller microbatches%s, ", m->rt.rows > 1 ? by_parameter(sp, "rows", "N") : "");
    if (m && !m->cost && m->rt.precision != BF16)
        put(&t, "precision = \"bf16\"%s, ", by_parameter(sp, "precision", "bf16"));
    if (!sp->declared.recompute)
        put(&t, "--recompute, ");
    put(&t, "a lower cap, ");
    if (!sp->choices.auto_offload)
        put(&t, "offload = \"auto\", ");
    put(&t, "homes that several ranks share (zero1.lua, fsdp.lua), teams%s or more ranks",
        sp->owners.tensor > 1 ? "" : " (-D tensor=2)");
    return t.s;
}

static _Noreturn void refuse_device(const struct spec *sp, const struct rank *k, int r) {
    int64_t held[NKINDS];
    sum_permanent(k, held);
    die("%s: rank %d needs %lld bytes, %.0f" BEYOND "memory of %.0f: weights %lld, gradients %lld, "
        "optimizer %lld, workspace %lld, the rest activations and fetched weights; it takes less with %s",
        sp->file, r, (long long)k->arena, (double)k->arena - sp->machine.memory, sp->machine.memory,
        (long long)(held[K_weight] + held[K_wshard]), (long long)(held[K_wgrad] + held[K_gshard] + held[K_gown]),
        (long long)held[K_opt], (long long)held[K_work], remedies(sp));
}

void memory_check(const struct spec *sp, const struct program *p) {
    int device = 0, host = 0; /* the ranks that need most */
    for (int r = 1; r < p->workers; r++) {
        device = p->rank[r].arena > p->rank[device].arena ? r : device;
        host = p->rank[r].host > p->rank[host].host ? r : host;
    }
    if ((double)p->rank[device].arena > sp->machine.memory)
        refuse_device(sp, &p->rank[device], device);
    if ((double)p->rank[host].host > sp->machine.host_memory)
        die("%s: rank %d needs %lld bytes of host memory, %.0f" BEYOND "host_memory of %.0f; offload "
            "less",
            sp->file, host, (long long)p->rank[host].host, (double)p->rank[host].host - sp->machine.host_memory,
            sp->machine.host_memory);
}
