/* Finds the model that a file of weights belongs to. A GGUF file has the sizes in its metadata; for safetensors they
 * are in the config.json beside it. Each architecture is one of the shipped scripts. */
#include "../../runtime/store/import.h"
#include "base/gguf_meta.h"
#include "base/read_file.h"
#include "base/read_json.h"
#include "command.h"
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Fields that both kinds of files have: X(field, GGUF's key after the architecture's name, config.json's). NAN:
 * absent. */
#define SIZES(X)                                                                                                       \
    X(layers, "block_count", "num_hidden_layers")                                                                      \
    X(width, "embedding_length", "hidden_size")                                                                        \
    X(heads, "attention.head_count", "num_attention_heads")                                                            \
    X(kv_heads, "attention.head_count_kv", "num_key_value_heads")                                                      \
    X(inner, "feed_forward_length", "intermediate_size")                                                               \
    X(vocab, "vocab_size", "vocab_size")                                                                               \
    X(rope, "rope.freq_base", "rope_theta")                                                                            \
    X(head, "attention.key_length", "head_dim")                                                                        \
    X(rotated, "rope.dimension_count", "partial_rotary_factor")                                                        \
    X(eps, "attention.layer_norm_rms_epsilon", "rms_norm_eps")                                                         \
    X(positions, "context_length", "n_positions")                                                                      \
    X(factor, "rope.scaling.factor", "factor")                                                                         \
    X(low, "rope.scaling.low_freq_factor", "low_freq_factor")                                                          \
    X(high, "rope.scaling.high_freq_factor", "high_freq_factor")                                                       \
    X(trained, "rope.scaling.original_context_length", "original_max_position_embeddings")

struct described {
    const char *file;
#define X(field, ...) double field;
    SIZES(X)
#undef X
    const char *architecture, *scaling; /* scaling: of rope, or NULL */
    const char *other;                  /* a property that no script can express, or NULL */
    bool tied, untied;                  /* untied: explicitly declared so */
    bool gelu;                          /* the gates use gelu */
};

static struct described undescribed(const char *file) {
    struct described d = {.file = file};
#define X(field, ...) d.field = NAN;
    SIZES(X)
#undef X
    return d;
}

static double columns_of_head(const struct described *d) { return isnan(d->head) ? d->width / d->heads : d->head; }

/* ---- GGUF ---- */

/* Returns the rope scaling. As in llama.cpp, a scaling without a type is linear, and an older key has its factor. */
static const char *gguf_scaling(const struct gguf_meta *g, struct described *d) {
    const char *type = gguf_string(g, format("%s.rope.scaling.type", d->architecture));
    if (isnan(d->factor))
        d->factor = gguf_number(g, format("%s.rope.scale_linear", d->architecture), NAN);
    if (!type)
        return isnan(d->factor) || d->factor == 0 || d->factor == 1 ? NULL : "linear";
    return strcmp(type, "none") == 0 ? NULL : type;
}

/* Recovers the parameters of Llama 3's rope scaling. llama.cpp's files have only the divisor of each frequency, not the
 * four parameters that produced them: a factor, which the slowest wave has, and three that are the same for all models
 * that Meta published. Accepts them if they give these divisors: 1 below a wavelength of 8192 / 4, the factor above
 * 8192, and a blend in between. */
static const char *llama3_scaling(struct described *d, const struct named *divisors) {
    enum { CONTEXT = 8192, LOW = 1, HIGH = 4 };
    const double columns = columns_of_head(d), base = isnan(d->rope) ? 10000 : d->rope;
    int64_t n = divisors->ndims == 1 ? divisors->dim[0] : 0;
    bool same = n > 0 && n == columns / 2;
    float last, divisor;
    if (same)
        values_read(divisors->type, divisors->data, n - 1, 1, &last);
    for (int64_t i = 0; same && i < n; i++) {
        double turns = CONTEXT / (2 * acos(-1) * pow(base, 2 * (double)i / columns)); /* of this wave in the context */
        double part = fmin(fmax((turns - LOW) / (HIGH - LOW), 0), 1);
        values_read(divisors->type, divisors->data, i, 1, &divisor);
        same = last >= 1 && fabs((double)divisor * (part + (1 - part) / (double)last) - 1) < 1e-5;
    }
    if (!same)
        die("%s: its rope is scaled by rope_freqs.weight, whose divisors are not those of Llama 3 with a context of "
            "%d, low_freq_factor %d and high_freq_factor %d; llama.lua cannot express them",
            d->file, CONTEXT, LOW, HIGH);
    d->factor = (double)last;
    d->low = LOW;
    d->high = HIGH;
    d->trained = CONTEXT;
    return "llama3";
}

static struct described of_gguf(const struct gguf_meta *g) {
    char why[1000];
    struct named_file *file = named_open(g->file, why, sizeof why);
    struct described d = undescribed(g->file);
    if (!file)
        die("%s", why);
    d.architecture = gguf_string(g, "general.architecture");
    if (!d.architecture)
        die("%s: has no general.architecture; name its model with --model", g->file);
#define X(field, key, json) d.field = gguf_number(g, format("%s.%s", d.architecture, key), NAN);
    SIZES(X)
#undef X
    struct gguf_value tokens = gguf_find(g, "tokenizer.ggml.tokens");
    d.vocab = tokens.array ? (double)tokens.n : d.vocab;
    if (isnan(d.eps))
        d.eps = gguf_number(g, format("%s.attention.layer_norm_epsilon", d.architecture), NAN);
    const struct named *divisors = named_find(file, "rope_freqs.weight");
    d.scaling = divisors ? llama3_scaling(&d, divisors) : gguf_scaling(g, &d);
    d.tied = !named_find(file, "output.weight");
    named_close(file);
    return d;
}

/* ---- config.json ---- */

/* The only values of these members that scripts can express, as text. null, the default, is accepted too. */
static const char *const only[][2] = {
    {"hidden_act", "\"silu\""},
    {"hidden_act", "\"gelu_pytorch_tanh\""},
    {"activation_function", "\"gelu_new\""},
    {"activation_function", "\"gelu_pytorch_tanh\""}, /* GPT-2's name for it */
    {"scale_attn_weights", "true"},
    {"scale_attn_by_inverse_layer_idx", "false"},
    {"use_sliding_window", "false"},
};
enum { NONLY = sizeof only / sizeof *only };

static void check_only(struct json_in *j, struct described *d, const char *name) {
    const char *expected = NULL;
    bool fits = json_peek(j) == 'n';
    for (int i = NONLY - 1; i >= 0; i--)
        if (strcmp(name, only[i][0]) == 0) {
            size_t n = strlen(expected = only[i][1]);
            fits |= n <= (size_t)(j->end - j->at) && memcmp(j->at, expected, n) == 0;
        }
    if (expected && !fits)
        d->other = format("its %s is not %s", name, expected);
}

/* Reads a member. inside: it is in the object that describes rope's scaling. */
static void read_member(struct json_in *j, struct described *d, const char *name, bool inside) {
    static const char *const same[][2] = {
        {"n_layer", "num_hidden_layers"},           {"n_embd", "hidden_size"},
        {"n_head", "num_attention_heads"},          {"n_inner", "intermediate_size"},
        {"max_position_embeddings", "n_positions"}, {"layer_norm_epsilon", "rms_norm_eps"}}; /* GPT-2's */
    for (int i = 0; i < (int)(sizeof same / sizeof *same); i++)
        name = strcmp(name, same[i][0]) == 0 ? same[i][1] : name;
    bool said = json_peek(j) != 'n';
#define X(field, key, json)                                                                                            \
    if (said && strcmp(name, json) == 0) {                                                                             \
        d->field = json_real(j);                                                                                       \
        return;                                                                                                        \
    }
    SIZES(X)
#undef X
    check_only(j, d, name);
    if (strcmp(name, "model_type") == 0)
        d->architecture = json_string_or_null(j);
    else if (strcmp(name, "hidden_act") == 0) {
        const char *act = json_string_or_null(j);
        d->gelu = act && strcmp(act, "gelu_pytorch_tanh") == 0;
    } else if (strcmp(name, "tie_word_embeddings") == 0)
        d->untied = !(d->tied = json_true(j));
    else if (!inside && said && (strcmp(name, "rope_parameters") == 0 || strcmp(name, "rope_scaling") == 0))
        for (json_open(j, '{'); json_more(j, '}');)
            read_member(j, d, json_name(j), true);
    else if (inside && (strcmp(name, "rope_type") == 0 || strcmp(name, "type") == 0)) {
        const char *type = json_string_or_null(j);
        d->scaling = type && strcmp(type, "default") != 0 ? type : d->scaling;
    } else
        json_skip(j);
}

static struct described of_config(const char *path) {
    struct described d = undescribed(path);
    size_t n;
    char *s = read_file(path, &n);
    struct json_in json = {.file = path, .from = s, .at = s, .end = s + n}, *j = &json;
    for (json_open(j, '{'); json_more(j, '}');)
        read_member(j, &d, json_name(j), false);
    json_close(j);
    bool gpt2 = d.architecture && strcmp(d.architecture, "gpt2") == 0;
    d.tied |= gpt2 && !d.untied; /* defaults of transformers */
    d.eps = isnan(d.eps) ? gpt2 ? 1e-5 : 1e-6 : d.eps;
    d.head = isnan(d.head) && d.architecture && strcmp(d.architecture, "qwen3") == 0 ? 128 : d.head;
    d.rotated *= columns_of_head(&d); /* rotated was a share of the columns */
    return d;
}

/* ---- the script ---- */

static const char *need_key(const struct described *d, const char *key, double x, const char *what) {
    if (isnan(x))
        die("%s: does not give its model's %s; name the model with --model", d->file, what);
    if (!(x >= 1 && x <= INT32_MAX && x == floor(x)))
        die("%s: says %g for the %s of its model; expected a whole number from 1 to %d", d->file, x, what, INT32_MAX);
    return format("%s=%.0f", key, x);
}

enum { MOST_SET = 17 };

static void check_eps(const struct described *d) {
    if (!((float)d->eps > 0))
        die("%s: does not give its norms' eps, a number above 0; name the model with --model", d->file);
}

/* Sets rare properties: biases, norms of heads, heads of their own width, another eps, a scaled rope. Other biases in a
 * file belong to no layer. Returns the number of settings. */
static int set_rarer(const struct described *d, const char **set) {
    bool llama3 = d->scaling && strcmp(d->scaling, "llama3") == 0;
    int n = 0;
    if (!isnan(d->rotated) && d->rotated != columns_of_head(d))
        die("%s: its rope rotates %g of the %g columns of a head, but llama.lua's rotates all", d->file, d->rotated,
            columns_of_head(d));
    check_eps(d);
    if (d->scaling && !llama3 && strcmp(d->scaling, "linear") != 0)
        die("%s: its rope is scaled (%s), which llama.lua cannot express", d->file, tame(d->scaling));
    if (d->scaling && (!(d->factor > 0) || (llama3 && (isnan(d->low) || isnan(d->high) || isnan(d->trained)))))
        die("%s: does not say how its rope is scaled (%s)", d->file, tame(d->scaling));
    if (strcmp(d->architecture, "qwen2") == 0)
        set[n++] = "bias=true";
    if (strcmp(d->architecture, "qwen3") == 0)
        set[n++] = "qk_norm=true";
    if (d->gelu)
        set[n++] = "gate=gelu";
    if (!isnan(d->head) && d->head * d->heads != d->width)
        set[n++] = need_key(d, "dim", d->head, "columns of a head");
    if ((float)d->eps != 1e-5f)
        set[n++] = format("eps=%.9g", d->eps);
    if (d->scaling)
        set[n++] = format("rope_factor=%g", d->factor);
    if (llama3) {
        set[n++] = format("rope_low=%g", d->low);
        set[n++] = format("rope_high=%g", d->high);
        set[n++] = need_key(d, "rope_context", d->trained, "context of its rope");
    }
    return n;
}

static int set_llama(const struct described *d, const char **set) {
    const char *all[] = {
        need_key(d, "layers", d->layers, "layers"),
        need_key(d, "width", d->width, "width"),
        need_key(d, "heads", d->heads, "heads"),
        need_key(d, "kv_heads", isnan(d->kv_heads) ? d->heads : d->kv_heads, "heads of keys and values"),
        need_key(d, "inner", d->inner, "inner width"),
        need_key(d, "vocab", d->vocab, "vocabulary"),
        need_key(d, "rope", isnan(d->rope) ? 10000 : d->rope, "base of rope"),
        d->tied ? "tied=true" : "tied=false"};
    enum { N = sizeof all / sizeof *all };
    memcpy(set, all, sizeof all);
    int n = N + set_rarer(d, set + N);
    if (d->positions > 0)
        set[n++] = need_key(d, "context", d->positions, "positions");
    return n;
}

static int set_gpt2(const struct described *d, const char **set) {
    const char *all[] = {
        need_key(d, "layers", d->layers, "layers"),        need_key(d, "width", d->width, "width"),
        need_key(d, "heads", d->heads, "heads"),           need_key(d, "vocab", d->vocab, "vocabulary"),
        need_key(d, "context", d->positions, "positions"), d->tied ? "tied=true" : "tied=false"};
    if (!isnan(d->inner) && d->inner != 4 * d->width)
        die("%s: its inner width is %.0f, but gpt2.lua's is four times the width, %.0f", d->file, d->inner,
            4 * d->width);
    enum { N = sizeof all / sizeof *all };
    memcpy(set, all, sizeof all);
    check_eps(d);
    if ((float)d->eps == 1e-5f)
        return N;
    set[N] = format("norm_eps=%.9g", d->eps);
    return N + 1;
}

static const struct architecture {
    const char *name, *script;
    int (*set)(const struct described *d, const char **set);
} architectures[] = {
    {"llama", "models/llama.lua", set_llama},
    {"qwen2", "models/llama.lua", set_llama},
    {"qwen3", "models/llama.lua", set_llama},
    {"gpt2", "models/gpt2.lua", set_gpt2},
};
enum { NARCHITECTURES = sizeof architectures / sizeof *architectures };

static const struct architecture *known_architecture(const struct described *d) {
    struct text names = {0};
    for (int i = 0; i < NARCHITECTURES; i++) {
        if (strcmp(architectures[i].name, d->architecture) == 0)
            return &architectures[i];
        put(&names, "%s%s", i ? ", " : "", architectures[i].name);
    }
    die("%s: unknown architecture '%s'; known are %s. Write the model as a script, and give it with --model", d->file,
        tame(d->architecture), names.s);
}

/* Unties a model whose output layer differs from the token table, whatever config.json says; transformers does so
 * too. */
static void check_tied(struct described *d, const char *weights) {
    static const char *const tables[] = {"model.embed_tokens.weight", "transformer.wte.weight", "wte.weight"};
    char why[1000];
    struct named_file *file = d->tied ? named_open(weights, why, sizeof why) : NULL;
    const struct named *head = file ? named_find(file, "lm_head.weight") : NULL, *table = NULL;
    for (int i = 0; head && i < 3 && !table; i++)
        table = named_find(file, tables[i]);
    if (table && !named_equal(head, table)) {
        fprintf(stderr,
                "pianola: warning: %s says that the output layer is the token table, but %s has a different "
                "lm_head.weight, which is used\n",
                d->file, weights);
        d->tied = false;
    }
    if (file)
        named_close(file);
}

static const char *config_beside(const char *weights) {
    const char *slash = strrchr(weights, '/');
    return format("%.*sconfig.json", slash ? (int)(slash - weights) + 1 : 0, weights);
}

void model_of_weights(struct script_args *args, const char *weights) {
    struct gguf_meta g;
    const char *config = config_beside(weights);
    struct stat st;
    if (stat(weights, &st) == 0 && S_ISDIR(st.st_mode))
        die("%s: is a folder; name the file in it, such as model.safetensors or model.safetensors.index.json", weights);
    if (args->model)
        return;
    bool gguf = gguf_map(weights, &g);
    if (access(weights, R_OK) != 0)
        die("%s: %s", weights, strerror(errno));
    if (!gguf && access(config, R_OK) != 0)
        die("%s: no config.json beside it describes its model; name the model with --model", weights);
    struct described d = gguf ? of_gguf(&g) : of_config(config);
    if (!d.architecture)
        die("%s: has no model_type", config);
    if (!gguf)
        check_tied(&d, weights);
    const struct architecture *architecture = known_architecture(&d);
    if (d.other)
        die("%s: %s, which %s cannot express", d.file, d.other, architecture->script);
    const char *own[MOST_SET];
    int n = architecture->set(&d, own);
    args->model = shipped_file(architecture->script);
    const char **set = NEW(const char *, n + args->nset);
    struct text said = {0};
    for (int i = 0; i < n; i++) {
        set[i] = own[i];
        put(&said, " -D %s", own[i]);
    }
    for (int i = 0; i < args->nset; i++)
        set[n + i] = args->set[i];
    args->set = set;
    args->nset += n;
    fprintf(stderr, "pianola: %s: using --model %s%s\n", weights, args->model, said.s);
}

/* Returns what config.json says, as transformers understands it: rope without a base uses 10000. */
static struct named_said said_by_config(const char *config) {
    struct named_said said = nothing_said;
    struct described d = of_config(config);
    bool rotary = d.architecture && strcmp(d.architecture, "gpt2") != 0;
    said.rope = isnan(d.rope) && rotary ? 10000 : d.rope;
    said.eps = d.eps;
    said.positions = d.positions;
    said.head = columns_of_head(&d);
    said.factor = d.factor;
    said.low = d.low;
    said.high = d.high;
    said.context = d.trained;
    if (rotary)
        snprintf(said.scaling, sizeof said.scaling, "%s", d.scaling ? tame(d.scaling) : "none");
    return said;
}

void tell_difference(const char *weights, const struct stage *st, int n, int64_t rows) {
    char why[1000];
    struct named_file *file = named_open(weights, why, sizeof why);
    if (!file) /* the reader of the file reports why */
        return;
    const char *config = config_beside(weights);
    bool beside = !named_is_gguf(file) && access(config, R_OK) == 0;
    struct named_said said = beside ? said_by_config(config) : *named_said(file);
    if (!isnan(said.rope) && (double)rows > said.positions)
        fprintf(stderr,
                "pianola: warning: %s says that its model was trained for %.0f positions, but this run uses %lld\n",
                beside ? config : weights, said.positions, (long long)rows);
    for (int s = 0; s < n; s++)
        if (import_differs(file, beside ? config : weights, &said, &st[s].rt, why, sizeof why)) {
            fprintf(stderr, "pianola: warning: %s\n", why);
            break;
        }
    named_close(file);
}
