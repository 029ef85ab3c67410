/* Checkpoints come back bit for bit under every cut. Hostile, truncated or altered files are refused by name. A writer
 * killed at any moment loses nothing that was complete. */
#include "store/checkpoint.h"
#include "store/fnv1a.h"
#include "layers/host.h"
#include "checkpoint_room.h"
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>

TestSuite(checkpoint, .init = make_dir, .fini = remove_dir);

static bool there(const char *name) { return access(in_dir(name), F_OK) == 0; }

/* ---- a model, its stages under a cut, and state that depends only on layer, place and step ---- */

static struct model *small_model(void) {
    struct model *m = gpt(8, 4, 16, 2, 2, 8, 2);
    m->rt.optimizer = OPT_ADAMW;
    return m;
}

static struct stage *cut(struct model *m, int stages) { return cost_stages(spec_of(m, stages)); }

/* Fills in arbitrary bits, including NaNs, infinities and subnormals. */
static void fill(const struct rt_model *m, const struct rt_stage *s, int64_t step, float *weight, float *moments) {
    int64_t n = weight_count(m, s);
    memset(weight, 0, (size_t)n * 4);
    if (m->optimizer == OPT_ADAMW)
        memset(moments, 0, (size_t)n * 8);
    for (int l = 0; l < s->nlayers; l++)
        for (int k = 0; k < (m->optimizer == OPT_ADAMW ? 3 : 1); k++) {
            float *at = (k == 0 ? weight : moments + (k - 1) * n) + s->layer[l].param / precision_bytes(m->precision);
            for (int64_t i = 0; i < s->layer[l].nparam; i++) {
                uint32_t bits =
                    (uint32_t)host_hash((uint64_t)(step * 3 + k) << 32 | (uint64_t)s->layer[l].index, (uint64_t)i);
                memcpy(&at[i], &bits, sizeof bits);
            }
        }
}

static const struct checkpoint_run some_run = {
    .seed = UINT64_MAX, .data_bytes = 123456789012, .data_hash = 0xabc, .most = 1, .steps = 77, .least = 1};

/* Writes n shards, the last ones first, each in its own memory, as n ranks do. The padding may fill some shards. */
static bool write_shards(const struct rt_model *m, const struct rt_stage *s, int stage, int64_t step, int shards,
                         const float *weight, const float *moments) {
    int64_t all = weight_count(m, s), stride = (all + shards - 1) / shards;
    const struct stage_file file = {dir, step, stage};
    bool ok = checkpoint_begin_stage(&file, m, s, why, sizeof why);
    for (int i = shards - 1; ok && i >= 0; i--) {
        int64_t first = i * stride, left = all - first;
        struct checkpoint_shard shard = {.first = first, .count = left < 0 ? 0 : left < stride ? left : stride};
        float *state = malloc((size_t)stride * 12 + 1);
        for (int64_t k = 0; k < shard.count; k++) {
            state[k] = weight[first + k];
            if (m->optimizer == OPT_ADAMW) {
                state[stride + k] = moments[first + k];
                state[2 * stride + k] = moments[all + first + k];
            }
        }
        shard.weight = state;
        shard.moments = m->optimizer == OPT_ADAMW ? state + stride : NULL;
        shard.stride = stride;
        ok = checkpoint_write_shard(&file, m, s, &shard, why, sizeof why);
        free(state);
    }
    return ok && checkpoint_end_stage(&file, why, sizeof why);
}

static bool write_stage(const struct rt_model *m, const struct stage *st, int s, int64_t step) {
    int64_t n = weight_count(m, &st[s].rt);
    float *weight = malloc((size_t)n * 4 + 1), *opt = malloc((size_t)n * 8 + 1);
    fill(m, &st[s].rt, step, weight, opt);
    bool ok = write_shards(m, &st[s].rt, s, step, 1, weight, opt);
    free(weight);
    free(opt);
    return ok;
}

static bool write_all(const struct rt_model *m, const struct stage *st, int n, int64_t step) {
    for (int s = 0; s < n; s++)
        if (!write_stage(m, st, s, step))
            return false;
    return checkpoint_write_manifest(dir, step, n, &some_run, why, sizeof why);
}

/* Reads a stage back and compares it bit for bit, including gaps. */
static bool comes_back(const struct rt_model *m, const struct rt_stage *s, int64_t step) {
    int64_t n = 4 * weight_count(m, s), state = m->optimizer == OPT_ADAMW ? 2 * n : 0;
    float *want = fresh(n), *want_opt = fresh(state), *got = checkpoint_read_stage(dir, step, m, s, why, sizeof why);
    fill(m, s, step, want, want_opt);
    bool same = got && memcmp(got, want, (size_t)n) == 0 && memcmp(got + n / 4, want_opt, (size_t)state) == 0;
    free(got);
    return same;
}

static int64_t latest(void) {
    int64_t step;
    return checkpoint_latest(dir, &step, why, sizeof why) ? step : -1;
}

/* ---- round trips ---- */

Test(checkpoint, every_cut_resumes_every_cut) {
    struct model *m = small_model();
    for (int from = 1; from <= 3; from++) {
        cr_assert(write_all(&m->rt, cut(m, from), from, from), "%s", why);
        for (int to = 1; to <= 3; to++)
            for (int s = 0; s < to; s++)
                cr_expect(comes_back(&m->rt, &cut(m, to)[s].rt, from), "%d to %d, stage %d: %s", from, to, s, why);
    }
    struct checkpoint_run run;
    cr_assert(checkpoint_read_run(dir, 2, &run, why, sizeof why), "%s", why);
    cr_expect(run.seed == UINT64_MAX && run.data_bytes == 123456789012 && run.data_hash == 0xabc);
    cr_expect(run.most == 1 && run.least == 1);
    cr_expect_eq(latest(), 3);
    cr_expect_str_empty(why);
}

/* A file has the same bytes for any ranks of its shards, so shards resume whole stages, and the reverse. */
Test(checkpoint, shards_make_the_file_of_the_whole) {
    struct model *m = small_model();
    for (int optimizer = OPT_SGD; optimizer <= OPT_ADAMW; optimizer++) {
        m->rt.optimizer = optimizer;
        const struct rt_stage *s = &cut(m, 1)->rt;
        float *weight = fresh(s->weight), *moments = fresh(2 * s->weight);
        size_t n, whole;
        fill(&m->rt, s, 3, weight, moments);
        cr_assert(write_all(&m->rt, cut(m, 1), 1, 3), "%s", why);
        char *wanted = slurp(in_dir("step-00000003/stage-0000.safetensors"), &whole);
        for (int shards = 2; shards <= 5000; shards = shards < 9 ? shards + 1 : 9 * shards) {
            cr_assert(write_shards(&m->rt, s, 0, 4, shards, weight, moments), "%s", why);
            char *got = slurp(in_dir("step-00000004/stage-0000.safetensors"), &n);
            const char *step = strstr(got + 8, "\"step\":\"4\"");
            cr_assert(step && n == whole);
            got[step + 8 - got] = '3';
            cr_expect(memcmp(got, wanted, n) == 0, "%d shards", shards);
        }
    }
}

/* Files hold the fp32 masters, so a run resumes in the other precision: only gaps and offsets differ. */
Test(checkpoint, either_precision_resumes_either) {
    struct model *fp32 = small_model(), *bf16 = small_model();
    bf16->rt.precision = BF16;
    struct stage *one = cut(fp32, 1), *two = cut(bf16, 2);
    cr_assert(one[0].rt.layer[3].param / 4 != two[0].rt.layer[3].param / 2 && two[0].rt.opt == 6 * two[0].rt.weight);
    cr_assert(write_all(&fp32->rt, one, 1, 1) && write_all(&bf16->rt, two, 2, 2), "%s", why);
    for (int step = 1; step <= 2; step++) {
        cr_expect(comes_back(&fp32->rt, &one[0].rt, step), "%s", why);
        cr_expect(comes_back(&bf16->rt, &two[0].rt, step) && comes_back(&bf16->rt, &two[1].rt, step), "%s", why);
    }
    cr_assert(checkpoint_export(dir, 1, in_dir("from-fp32"), why, sizeof why), "%s", why);
    cr_assert(checkpoint_export(dir, 2, in_dir("from-bf16"), why, sizeof why), "%s", why);
    struct safetensors *f = safetensors_open(in_dir("from-bf16"), why, sizeof why);
    cr_assert(f && safetensors_find(f, "layer.3.bias")->dim[0] == 24, "%s", why);
    safetensors_close(f);
}

/* A shared table has its own file after the stages' files, under every cut. It is one tensor, as an embedding's. */
Test(checkpoint, a_shared_table_is_saved_once) {
    struct model *m = small_model();
    m->layer[m->nlayers - 2] = (struct model_layer){.kind = LAYER_unembedding, .item = m->nitems - 2};
    for (int from = 1; from <= 3; from++) {
        cr_assert(write_all(&m->rt, cut(m, from), from + 1, from), "%s", why);
        for (int to = 1; to <= 3; to++)
            for (int s = 0; s <= to; s++)
                cr_expect(comes_back(&m->rt, &cut(m, to)[s].rt, from), "%d to %d, stage %d: %s", from, to, s, why);
    }
    struct safetensors *f = safetensors_open(in_dir("step-00000003/stage-0003.safetensors"), why, sizeof why);
    cr_assert(f, "%s", why);
    cr_expect_eq(f->n, 3); /* and its moments */
    const struct tensor *t = safetensors_find(f, "layer.0.token");
    cr_expect(t && t->ndims == 2 && t->dim[0] == 16 && t->dim[1] == 8);
    safetensors_close(f);
    size_t n[3];
    char *bytes[3];
    for (int from = 1; from <= 3; from++) {
        cr_assert(write_all(&m->rt, cut(m, from), from + 1, 9), "%s", why);
        cr_assert(checkpoint_export(dir, 9, in_dir("all.safetensors"), why, sizeof why), "%s", why);
        bytes[from - 1] = slurp(in_dir("all.safetensors"), &n[from - 1]);
        cr_expect(n[from - 1] == n[0] && !memcmp(bytes[from - 1], bytes[0], n[0]), "exported under another cut");
    }
    f = safetensors_open(in_dir("all.safetensors"), why, sizeof why);
    cr_assert(f, "%s", why);
    cr_expect(safetensors_find(f, "layer.0.token") && safetensors_find(f, "layer.0.position"));
    safetensors_close(f);
}

Test(checkpoint, without_optimizer_state_and_without_parameters) {
    struct model *m = model_integers(4, 6, 1);
    add(m, LAYER_linear, 5);
    add(m, LAYER_relu, 0);
    add(m, LAYER_linear, 6);
    add(m, LAYER_mse, 0);
    struct stage *st = cut(m, 2);
    cr_assert_eq(st[0].rt.opt, 0);
    cr_assert(write_all(&m->rt, st, 2, 7), "%s", why);
    cr_expect(comes_back(&m->rt, &st[0].rt, 7) && comes_back(&m->rt, &st[1].rt, 7), "%s", why);
    struct rt_stage bare = {.layer = NULL};
    cr_assert(write_shards(&m->rt, &bare, 0, 8, 1, NULL, NULL), "%s", why);
    cr_expect(checkpoint_write_manifest(dir, 8, 1, &some_run, why, sizeof why), "%s", why);
    cr_expect(comes_back(&m->rt, &bare, 8), "%s", why);
}

/* Checks what other readers rely on: names, shapes, padding, metadata, and that the data follow the header directly. */
Test(checkpoint, file_is_as_the_format_says) {
    struct model *m = small_model();
    struct stage *st = cut(m, 1);
    cr_assert(write_stage(&m->rt, st, 0, 12), "%s", why);
    const char *path = in_dir("step-00000012/stage-0000.safetensors");
    size_t n;
    char *s = slurp(path, &n);
    uint64_t length;
    memcpy(&length, s, 8);
    cr_expect(length % 8 == 0 && s[8] == '{');
    static const char begin[] = "{\"__metadata__\":{\"format\":\"pianola 1\",\"step\":\"12\",\"stage\":\"0\"},"
                                "\"layer.0.token\":{\"dtype\":\"F32\",\"shape\":[16,8],\"data_offsets\":[0,512]},"
                                "\"layer.0.position\":{\"dtype\":\"F32\",\"shape\":[4,8],\"data_offsets\":[512,640]},"
                                "\"layer.2.gamma\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[640,672]},"
                                "\"layer.2.beta\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[672,704]},"
                                "\"layer.3.weight\":{\"dtype\":\"F32\",\"shape\":[8,24],\"data_offsets\":[704,1472]},"
                                "\"layer.3.bias\":{\"dtype\":\"F32\",\"shape\":[24],";
    cr_expect(strncmp(s + 8, begin, sizeof begin - 1) == 0, "%.*s", (int)sizeof begin, s + 8);
    float *weight = fresh(st[0].rt.weight), *opt = fresh(st[0].rt.opt);
    fill(&m->rt, &st[0].rt, 12, weight, opt);
    cr_expect(memcmp(s + 8 + length, weight, 640) == 0);
    struct safetensors *f = safetensors_open(path, why, sizeof why);
    cr_assert(f, "%s", why);
    cr_expect(safetensors_find(f, "layer.3.weight.v") && !safetensors_find(f, "layer.3.weight.w"));
    cr_expect_str_eq(safetensors_meta(f, "step"), "12");
    cr_expect_null(safetensors_meta(f, "steps"));
    safetensors_close(f);
}

/* ---- all or nothing ---- */

static void refuses(const struct rt_model *m, const struct rt_stage *s, const char *message) {
    cr_expect_null(checkpoint_read_stage(dir, 5, m, s, why, sizeof why), "expected: %s", message);
    cr_expect(strstr(why, message) && strncmp(why, dir, strlen(dir)) == 0, "%s, but expected %s", why, message);
}

Test(checkpoint, another_model_is_refused) {
    struct model *m = small_model(), *wide = gpt(8, 4, 16, 2, 2, 16, 2), *deep = gpt(8, 4, 16, 2, 3, 8, 2);
    cr_assert(write_all(&m->rt, cut(m, 2), 2, 5));
    refuses(&wide->rt, &cut(wide, 1)->rt, "layer.0.token is 16 x 8, but this model's is 16 x 16");
    refuses(&deep->rt, &cut(deep, 1)->rt, "layer.26.gamma; it belongs to another model or optimizer");
    m->rt.optimizer = OPT_SGD;
    cr_assert(write_all(&m->rt, cut(m, 2), 2, 5));
    cr_expect(comes_back(&m->rt, &cut(m, 1)->rt, 5), "%s", why);
    m->rt.optimizer = OPT_ADAMW;
    refuses(&m->rt, &cut(m, 1)->rt, "has no layer.0.token.m; it belongs to another model or optimizer");
}

Test(checkpoint, files_of_another_step_or_layers_twice_are_refused) {
    struct model *m = small_model();
    struct stage *st = cut(m, 2);
    cr_assert(write_all(&m->rt, st, 2, 4) && write_all(&m->rt, st, 2, 5));
    cr_assert_eq(rename(in_dir("step-00000004/stage-0001.safetensors"), in_dir("step-00000005/stage-0001.safetensors")),
                 0);
    refuses(&m->rt, &cut(m, 1)->rt, "stage-0001.safetensors: is not of format pianola 1 and step 5");
    cr_assert(write_all(&m->rt, cut(m, 1), 1, 5) && write_stage(&m->rt, st, 1, 5));
    cr_assert(checkpoint_write_manifest(dir, 5, 2, &some_run, why, sizeof why));
    refuses(&m->rt, &cut(m, 1)->rt, "which another file also has");
    cr_assert_eq(unlink(in_dir("step-00000005/stage-0001.safetensors")), 0);
    refuses(&m->rt, &cut(m, 1)->rt, "stage-0001.safetensors: No such file or directory");
}

/* ---- a whole checkpoint, altered ---- */

#define STAGE0   "step-00000003/stage-0000.safetensors"
#define MANIFEST "step-00000003/manifest.json"

static void write_tiny(void) {
    struct model *m = gpt(4, 4, 6, 1, 1, 4, 1);
    cr_assert(write_all(&m->rt, cut(m, 1), 1, 3), "%s", why);
    cr_assert_eq(latest(), 3);
}

Test(checkpoint, files_cut_off_anywhere_are_refused) {
    write_tiny();
    size_t n;
    char *s = slurp(in_dir(STAGE0), &n);
    cr_assert_gt(n, 2000);
    for (size_t k = 0; k < n; k += k < 16 ? 1 : 64) {
        spill(in_dir(STAGE0), s, k);
        cr_expect_not(opens(in_dir(STAGE0)), "%zu of %zu bytes", k, n);
        cr_expect(strstr(why, STAGE0 ": "), "%s", why);
        cr_expect_eq(latest(), -1);
        cr_expect(strstr(why, STAGE0 ": does not match the checksum in the manifest"), "%s", why);
    }
    spill(in_dir(STAGE0), s, n + 1);
    refused(in_dir(STAGE0), "1 bytes after the last tensor belong to no tensor");
    spill(in_dir(STAGE0), s, n);
    cr_expect_eq(latest(), 3);
    s = slurp(in_dir(MANIFEST), &n);
    for (size_t k = 0; k < n; k++) {
        spill(in_dir(MANIFEST), s, k);
        cr_expect_eq(latest(), -1, "%zu of %zu bytes of the manifest", k, n);
    }
}

/* Random changes of one to four bytes, half of them in the header: none crashes the reader, none goes unnoticed. */
Test(checkpoint, altered_bytes_never_crash_and_never_pass) {
    write_tiny();
    size_t n;
    uint64_t length;
    char *s = slurp(in_dir(STAGE0), &n), *t = fresh((int64_t)n);
    memcpy(&length, s, 8);
    int opened = 0;
    for (uint64_t i = 0; i < 5000; i++) {
        memcpy(t, s, n);
        for (uint64_t k = 0; k <= i % 4; k++) {
            uint64_t h = host_hash(i, k);
            t[h % (h >> 63 ? n : length + 8)] = (char)(h >> 32);
        }
        if (memcmp(s, t, n) == 0)
            continue;
        spill(in_dir(STAGE0), t, n);
        opened += opens(in_dir(STAGE0));
        cr_assert_eq(latest(), -1, "change %d passed", (int)i);
    }
    cr_expect(opened > 100 && opened < 4000, "%d changes kept the format", opened);
    spill(in_dir(STAGE0), s, n);
    s = slurp(in_dir(MANIFEST), &n);
    for (size_t i = 0; i < n; i++) {
        s[i] ^= 1;
        spill(in_dir(MANIFEST), s, n);
        cr_expect_eq(latest(), -1, "byte %zu of the manifest", i);
        s[i] ^= 1;
    }
    spill(in_dir(MANIFEST), s, n);
    cr_expect_eq(latest(), 3);
}

/* Writes a manifest with the right checksum, as an attacker would. */
static void forge(const char *text, size_t n) {
    char *s = fresh((int64_t)n + 64);
    memcpy(s, text, n);
    n += (size_t)sprintf(s + n, "  \"check\": \"%016llx\"\n}\n", (unsigned long long)fnv1a(FNV_START, text, n));
    spill(in_dir(MANIFEST), s, n);
}

Test(checkpoint, hostile_manifests_are_refused) {
    static const char *const bad[][3] = {
        {"pianola 1", "pianola 2", "format \"pianola 2\"; only \"pianola 1\" is read"},
        {"\"step\": 3", "\"step\": 4", "it is of step 4"},
        {"\"step\": 3", "\"step\": -3", "expected a whole number"},
        {"\"step\"", "\"stop\"", "expected \"step\""},
        {"stage-0000.safetensors", "../../../../etc/passwd", "expected the name stage-0000.safetensors"},
        {"stage-0000.safetensors", "stage-0001.safetensors", "expected the name stage-0000.safetensors"},
        {"\"seed\": \"f", "\"seed\": \"g", "expected 16 hexadecimal digits"},
        {"\"seed\": \"f", "\"seed\": \"", "expected 16 hexadecimal digits"},
        {"\"bytes\": ", "\"bytes\": 9999999999999999999", "a number beyond"},
        {"\"bytes\": ", "\"bytes\": 1", "does not match the checksum in the manifest"},
        {"],", "[,", "expected ]"},
        {"],", "]", "expected ,"},
    };
    write_tiny();
    size_t n;
    char *s = slurp(in_dir(MANIFEST), &n);
    *strstr(s, "  \"check\"") = 0;
    n = strlen(s);
    forge(s, n);
    cr_assert_eq(latest(), 3, "%s", why);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *at = strstr(s, bad[i][0]), *t = fresh((int64_t)n + 256);
        cr_assert(at);
        sprintf(t, "%.*s%s%s", (int)(at - s), s, bad[i][1], at + strlen(bad[i][0]));
        forge(t, strlen(t));
        cr_expect_eq(latest(), -1, "%s", bad[i][1]);
        cr_expect(strstr(why, bad[i][2]), "got: %s\nexpected: %s", why, bad[i][2]);
    }
    for (uint64_t i = 0; i < 3000; i++) {
        char *t = memcpy(malloc(n), s, n);
        for (uint64_t k = 0; k <= i % 3; k++)
            t[host_hash(i, k) % n] = "{}[]\",:09 a\\\n\xff\0x"[host_hash(k, i) % 16];
        forge(t, n);
        latest();
        free(t);
    }
}

/* ---- keeping and removing ---- */

Test(checkpoint, keeps_the_last_whole_ones) {
    struct model *m = small_model();
    struct stage *st = cut(m, 2);
    for (int step = 10; step <= 70; step += 10)
        cr_assert(write_all(&m->rt, st, 2, step), "%s", why);
    cr_assert(write_stage(&m->rt, st, 0, 35) && write_stage(&m->rt, st, 0, 5) && write_stage(&m->rt, st, 1, 80));
    spill(in_dir("step-00000060/stage-0001.safetensors"), "x", 1);
    spill(in_dir("step-00000010/notes.txt"), "x", 1);
    cr_assert(checkpoint_keep(dir, 3, why, sizeof why), "%s", why);
    cr_expect(there("step-00000080/stage-0001.safetensors"), "half written, the newest: someone may be at it");
    cr_expect(there("step-00000070/manifest.json") && there("step-00000050/manifest.json"));
    cr_expect(there("step-00000060/manifest.json"), "not whole: does not count, and is not removed yet");
    cr_expect(there("step-00000040/manifest.json"));
    cr_expect(!there("step-00000035") && !there("step-00000030") && !there("step-00000020") && !there("step-00000005"));
    cr_expect(there("step-00000010/notes.txt") && !there("step-00000010/manifest.json"), "not ours to remove");
    cr_expect_eq(latest(), 70);
    cr_expect(strstr(why, "step-00000080/manifest.json: No such file"), "%s", why);
    cr_assert(checkpoint_keep(dir, 1, why, sizeof why), "%s", why);
    cr_expect(there("step-00000070/manifest.json") && !there("step-00000060") && !there("step-00000040"));
    cr_expect_not(checkpoint_keep(in_dir("nowhere"), 1, why, sizeof why));
    cr_expect(strstr(why, "nowhere: No such file"), "%s", why);
}

Test(checkpoint, none_is_said) {
    cr_expect_eq(latest(), -1);
    cr_expect(strstr(why, ": holds no checkpoint"), "%s", why);
    cr_assert_eq(mkdir(in_dir("step-12"), 0777), 0);
    cr_expect_eq(latest(), -1);
    cr_expect(strstr(why, ": holds no checkpoint"), "%s", why);
}

/* ---- export ---- */

Test(checkpoint, export_has_all_parameters_whatever_the_cut) {
    struct model *m = small_model();
    char *first = NULL;
    size_t n = 0, k;
    for (int stages = 1; stages <= 3; stages++) {
        cr_assert(write_all(&m->rt, cut(m, stages), stages, 9), "%s", why);
        cr_assert(checkpoint_export(dir, stages == 2 ? 9 : -1, in_dir("out"), why, sizeof why), "%s", why);
        char *s = slurp(in_dir("out"), &k);
        cr_expect(!first || (k == n && memcmp(s, first, n) == 0), "%d stages", stages);
        first = s;
        n = k;
    }
    struct safetensors *f = safetensors_open(in_dir("out"), why, sizeof why);
    cr_assert(f, "%s", why);
    struct rt_stage *s = &cut(m, 1)->rt;
    float *weight = fresh(s->weight), *opt = fresh(s->opt), *got = fresh(s->weight);
    fill(&m->rt, s, 9, weight, opt);
    int64_t all = 0, held = 0;
    for (int l = 0; l < s->nlayers; l++)
        all += s->layer[l].nparam * 4;
    for (int i = 0; i < f->n; i++)
        held += f->tensor[i].end - f->tensor[i].at;
    cr_expect_eq(held, all);
    for (int l = 0; l < s->nlayers; l++) {
        char name[32];
        snprintf(name, sizeof name, "layer.%d.bias", l);
        const struct tensor *t = safetensors_find(f, name);
        cr_assert_eq(t != NULL, s->layer[l].kind == LAYER_linear);
        if (!t)
            continue;
        cr_assert(safetensors_read(f, t, got, why, sizeof why));
        cr_expect(memcmp(got, weight + s->layer[l].param / 4 + s->layer[l].in * s->layer[l].out,
                         (size_t)s->layer[l].out * 4) == 0);
    }
    safetensors_close(f);
    spill(in_dir("step-00000009/stage-0002.safetensors"), "x", 1);
    cr_expect_not(checkpoint_export(dir, 9, in_dir("out"), why, sizeof why));
    cr_expect(strstr(why, "stage-0002.safetensors: does not match the checksum"), "%s", why);
    slurp(in_dir("out"), &k);
    cr_expect_eq(k, n);
}

/* ---- faults ---- */

Test(checkpoint, a_full_disk_leaves_what_was_there) {
    struct model *m = small_model();
    struct stage *st = cut(m, 1);
    cr_assert(write_all(&m->rt, st, 1, 1), "%s", why);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before, limit;
    getrlimit(RLIMIT_FSIZE, &before);
    for (rlim_t most = 0; most < 20000; most += 1000) {
        limit = (struct rlimit){most, before.rlim_max};
        cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
        bool fresh_step = write_stage(&m->rt, st, 0, 2), same_step = write_stage(&m->rt, st, 0, 1);
        setrlimit(RLIMIT_FSIZE, &before);
        cr_expect(!fresh_step && !same_step, "%d bytes", (int)most);
        cr_expect(strstr(why, "stage-0000.safetensors: File too large"), "%s", why);
        cr_expect(!there("step-00000001/stage-0000.safetensors.tmp") && !there("step-00000002/stage-0000.safetensors"));
        cr_expect(!there("step-00000002/stage-0000.safetensors.tmp"));
    }
    cr_expect_eq(latest(), 1);
    cr_expect(comes_back(&m->rt, &st[0].rt, 1), "%s", why);
}

Test(checkpoint, folders_that_cannot_be_are_named) {
    struct model *m = small_model();
    struct stage *st = cut(m, 1);
    char home[64], name[5000];
    strcpy(home, dir);
    spill(in_dir("file"), "x", 1);
    strcpy(dir, in_dir("file"));
    cr_expect_not(write_stage(&m->rt, st, 0, 1));
    cr_expect(strstr(why, "/file: is no folder"), "%s", why);
    strcpy(dir, home);
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    int64_t step;
    cr_expect_not(checkpoint_latest(name, &step, why, sizeof why));
    cr_expect(strstr(why, ": File name too long"), "%s", why + strlen(why) - 40);
    cr_expect_not(checkpoint_write_manifest(dir, 1, 1, &some_run, why, sizeof why));
    cr_expect(strstr(why, "stage-0000.safetensors: No such file or directory"), "%s", why);
}

/* Writes checkpoints from `first` on, forever, keeping two. */
static _Noreturn void write_on(const struct rt_model *m, const struct stage *st, int n, int64_t first) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int64_t step = first;; step++)
        if (!write_all(m, st, n, step) || !checkpoint_keep(dir, 2, why, sizeof why)) {
            fprintf(stderr, "%s\n", why);
            _exit(1);
        }
}

/* After a kill, the newest whole checkpoint is not older than before, and reads back under another cut. */
static int64_t survived(struct model *m, int64_t before, int *torn) {
    int64_t now = latest();
    *torn += *why != 0;
    cr_assert_geq(now, before, "%s", why);
    for (int s = 0; now >= 0 && s < 2; s++)
        cr_assert(comes_back(&m->rt, &cut(m, 2)[s].rt, now), "%s", why);
    return now;
}

Test(checkpoint, killed_at_random_moments) {
    struct model *m = small_model();
    struct stage *st = cut(m, 3);
    cr_assert(write_all(&m->rt, st, 3, 0), "%s", why);
    int64_t step = 0;
    int torn = 0, status, longest = 50000; /* longest in us: grows until a slow machine completes a checkpoint */
    for (uint64_t i = 0; i < 100; i++) {
        pid_t child = fork();
        if (child == 0)
            write_on(&m->rt, st, 3, step + 1);
        usleep((useconds_t)(host_hash(4, i) % (uint64_t)longest));
        kill(child, SIGKILL);
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert(WIFSIGNALED(status), "the writer ended by itself");
        step = survived(m, step, &torn);
        longest += step == 0 ? 20000 : 0;
    }
    cr_expect(torn > 0 && step > 0, "%d were torn, the last whole one is %d", torn, (int)step);
}

/* Kills the writer before its system call number 1, 2, 3, …, so at every moment. */
Test(checkpoint, killed_at_every_system_call) {
    struct model *m = gpt(4, 4, 6, 1, 1, 4, 1);
    struct stage *st = cut(m, 2);
    int64_t step = 1;
    int torn = 0, status, calls = 0;
    cr_assert(write_all(&m->rt, st, 2, 0) && write_all(&m->rt, st, 2, 1), "%s", why);
    for (int64_t done = step; done < 3; calls++) {
        pid_t child = fork();
        if (child == 0) {
            if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
                _exit(3);
            raise(SIGSTOP);
            write_on(&m->rt, st, 2, 2);
        }
        cr_assert_eq(waitpid(child, &status, 0), child);
        if (!WIFSTOPPED(status))
            cr_skip_test("this machine forbids tracing");
        for (int k = 0; k < calls && WIFSTOPPED(status); k++)
            if (ptrace(PTRACE_SYSCALL, child, NULL, NULL) < 0 || waitpid(child, &status, 0) != child)
                break;
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        done = survived(m, step, &torn);
    }
    cr_expect(calls > 100 && torn > 50, "%d moments, %d torn", calls, torn);
}
