/* Writes checkpoints of a small model, and manifests for damaged ones:
 *
 *   checkpoints write DIR STEP STAGES     a whole checkpoint, cut into 1 to 3 stages
 *   checkpoints seal DIR STEP STAGES      a manifest with the checksums of the files as they are
 *   checkpoints file PATH HEADER BYTES [LENGTH]   a safetensors file: HEADER, BYTES of data; LENGTH: its header length
 *   checkpoints check PATH STEP           exits 0 if all parameters of the step match bit for bit, else 1 */
#include "store/checkpoint.h"
#include "store/safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NLAYERS_HERE = 4, MAX_FLOATS = 4096 };
static const struct rt_layer layers[NLAYERS_HERE] = {
    {.kind = LAYER_embedding, .out = 8, .context = 4, .index = 0, .nparam = 20 * 8},
    {.kind = LAYER_layernorm, .in = 8, .out = 8, .index = 2, .nparam = 16},
    {.kind = LAYER_linear, .config.linear.bias = true, .in = 8, .out = 16, .index = 3, .nparam = 8 * 16 + 16},
    {.kind = LAYER_cross_entropy, .in = 16, .index = 4},
};
static const struct rt_model model = {.input = INPUT_TOKENS, .context = 4, .vocab = 16, .optimizer = OPT_ADAMW};
static char why[2 * DURABLE_PATH];

static _Noreturn void fail(void) {
    fprintf(stderr, "checkpoints: %s\n", why);
    exit(2);
}

/* Returns arbitrary bits, including NaNs, as a function of step, layer and place. */
static float value(int64_t step, int32_t layer, int64_t i) {
    uint64_t bits = ((uint64_t)step * 31 + (uint64_t)layer) * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xd1b54a32d192ed03u;
    uint32_t high = (uint32_t)(bits >> 32);
    float x;
    memcpy(&x, &high, sizeof x);
    return x;
}

/* Stage s of n begins at layer s * 4 / n. */
static void write_stage(const char *dir, int64_t step, int s, int n) {
    struct rt_layer mine[NLAYERS_HERE];
    static float weight[MAX_FLOATS], opt[2 * MAX_FLOATS];
    struct rt_stage stage = {.layer = mine};
    for (int l = s * NLAYERS_HERE / n; l < (s + 1) * NLAYERS_HERE / n; l++) {
        mine[stage.nlayers] = layers[l];
        mine[stage.nlayers++].param = stage.weight;
        for (int64_t i = 0; i < layers[l].nparam; i++)
            weight[stage.weight / 4 + i] = value(step, layers[l].index, i);
        stage.weight += layers[l].nparam * 4;
    }
    stage.opt = 2 * stage.weight;
    struct checkpoint_shard all = {.count = stage.weight / 4, .weight = weight, .moments = opt};
    all.stride = all.count;
    const struct stage_file file = {dir, step, s};
    if (!checkpoint_begin_stage(&file, &model, &stage, why, sizeof why) ||
        !checkpoint_write_shard(&file, &model, &stage, &all, why, sizeof why) ||
        !checkpoint_end_stage(&file, why, sizeof why))
        fail();
}

static void seal(const char *dir, int64_t step, int n) {
    static const struct checkpoint_run run = {.seed = 1};
    if (!checkpoint_write_manifest(dir, step, n, &run, why, sizeof why))
        fail();
}

static void write_file(const char *path, const char *header, int64_t bytes, uint64_t length) {
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(&length, 8, 1, f) == 1 && fputs(header, f) >= 0;
    while (ok && bytes-- > 0)
        ok = fputc(0, f) == 0;
    if (!f || fclose(f) != 0 || !ok) {
        snprintf(why, sizeof why, "%s: could not be written", path);
        fail();
    }
}

static int check(const char *path, int64_t step) {
    struct safetensors *f = safetensors_open(path, why, sizeof why);
    if (!f)
        fail();
    static const char *const name[] = {"layer.0.token", "layer.0.position", "layer.2.gamma",
                                       "layer.2.beta",  "layer.3.weight",   "layer.3.bias"};
    static const int layer[] = {0, 0, 2, 2, 3, 3}, first[] = {0, 128, 0, 8, 0, 128};
    float x[MAX_FLOATS];
    bool same = f->n == 6;
    for (int i = 0; same && i < 6; i++) {
        const struct tensor *t = safetensors_find(f, name[i]);
        same = t && t == &f->tensor[i] && safetensors_read(f, t, x, why, sizeof why);
        for (int64_t k = 0; same && k < (t->end - t->at) / 4; k++) {
            float want = value(step, layer[i], first[i] + k);
            same = memcmp(&x[k], &want, sizeof want) == 0;
        }
    }
    safetensors_close(f);
    return !same;
}

int main(int argc, char **argv) {
    const char *what = argc > 3 ? argv[1] : "", *path = argc > 3 ? argv[2] : "";
    int64_t step = argc > 3 ? atoll(argv[3]) : 0;
    int stages = argc > 4 ? atoi(argv[4]) : 0;
    if (strcmp(what, "write") == 0 && stages > 0) {
        for (int s = 0; s < stages; s++)
            write_stage(path, step, s, stages);
        seal(path, step, stages);
    } else if (strcmp(what, "seal") == 0)
        seal(path, step, stages);
    else if (strcmp(what, "file") == 0 && argc > 4)
        write_file(path, argv[3], atoll(argv[4]), argc > 5 ? strtoull(argv[5], NULL, 10) : strlen(argv[3]));
    else if (strcmp(what, "check") == 0)
        return check(path, step);
    else {
        snprintf(why, sizeof why, "write, seal, file or check, and what they take");
        fail();
    }
    return 0;
}
