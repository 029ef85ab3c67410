/* `pianola export-weights --names hf`: writes a folder that Hugging Face's transformers load: model.safetensors,
 * config.json and, if a tokenizer is given, tokenizer.json. A model with units has the config.json of whoever wrote its
 * code, so none is made. */
#include "../../runtime/store/durable.h"
#include "../../runtime/store/export.h"
#include "base/gguf_meta.h"
#include "base/put_json.h"
#include "base/read_file.h"
#include "cli/command.h"
#include "cli/files.h"
#include "passes/layers.h"
#include "script/scripts.h"
#include "tokens.h"
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the model in transformers' terms ---- */

struct census {
    const struct rt_layer *embedding, *attention, *gate, *norm;
    int blocks, head_norms, units;
    bool biased, biased_keys; /* whether any linear layers have biases; whether those before attention do */
    bool another_eps;         /* some headnorm has another eps */
    bool tied;                /* its output matrix is the token table */
};

static struct census take_census(const struct rt_stage *const *stage, int n) {
    struct census c = {0};
    for (int s = 0; s < n; s++)
        for (const struct rt_layer *l = stage[s]->layer; l < stage[s]->layer + stage[s]->nlayers; l++) {
            bool norm = l->kind == LAYER_rmsnorm || l->kind == LAYER_layernorm;
            c.blocks += l->kind == LAYER_attention;
            c.units += rt_kind_of(l)->brought;
            c.tied |= l->kind == LAYER_unembedding;
            c.embedding = l->kind == LAYER_embedding && !c.embedding ? l : c.embedding;
            c.attention = l->kind == LAYER_attention ? l : c.attention;
            bool gates = l->kind == LAYER_swiglu || l->kind == LAYER_geglu || l->kind == LAYER_gelu;
            c.gate = gates ? l : c.gate;
            c.norm = norm ? l : c.norm;
            c.head_norms += l->kind == LAYER_headnorm;
            c.another_eps |= l->kind == LAYER_headnorm && (!c.norm || l->config.norm.eps != c.norm->config.norm.eps);
            if (l->kind == LAYER_linear && l->nparam > (int64_t)l->in * l->out)
                *(l + 1 < stage[s]->layer + stage[s]->nlayers && l[1].kind == LAYER_attention ? &c.biased_keys
                                                                                              : &c.biased) = true;
        }
    return c;
}

static void put_scaling(struct text *t, const struct attention_config *a) {
    if (a->rope_factor > 0)
        put(t, "  \"rope_scaling\": {\"rope_type\": \"%s\", \"factor\": %g", a->rope_context > 0 ? "llama3" : "linear",
            (double)a->rope_factor);
    if (a->rope_context > 0)
        put(t, ", \"low_freq_factor\": %g, \"high_freq_factor\": %g, \"original_max_position_embeddings\": %d",
            (double)a->rope_low, (double)a->rope_high, a->rope_context);
    if (a->rope_factor > 0)
        put_word(t, "},\n");
}

/* Writes the tokens that begin and end the model's texts, if the tokenizer has them. */
static void put_ends(struct text *t, const struct tokenizer *tokenizer) {
    const int64_t begin = tokenizer ? begin_of_text(tokenizer) : -1, end = tokenizer ? end_of_model(tokenizer) : -1;
    if (begin >= 0)
        put(t, "  \"bos_token_id\": %lld,\n", (long long)begin);
    if (end >= 0)
        put(t, "  \"eos_token_id\": %lld,\n", (long long)end);
}

static void put_config(struct text *t, const struct spec *sp, const struct census *c, const char *file,
                       const struct tokenizer *tokenizer) {
    const struct rt_model *m = &sp->model->rt;
    const struct rt_layer *e = c->embedding;
    const struct attention_config *a = c->attention ? &c->attention->config.attention : NULL;
    bool whole = a && e && c->gate && c->norm && e->config.embedding.scale == 1 && c->gate->config.gated.limit == 0;
    bool llama = whole && c->norm->kind == LAYER_rmsnorm && c->gate->kind != LAYER_gelu && a->rope > 0 &&
                 e->context == 0 && !c->biased &&
                 (c->head_norms == 0 || (c->head_norms == c->blocks && !c->biased_keys && !c->another_eps));
    bool gpt2 = whole && c->norm->kind == LAYER_layernorm && c->gate->kind == LAYER_gelu && a->rope == 0 &&
                e->context > 0 && a->heads == a->kv_heads;
    if (llama) {
        bool qwen2 = c->biased_keys, qwen3 = c->head_norms > 0;
        const char *prefix = qwen2 ? "Qwen2" : qwen3 ? "Qwen3" : "Llama";
        const char *family = qwen2 ? "qwen2" : qwen3 ? "qwen3" : "llama";
        put(t,
            "{\n  \"architectures\": [\"%sForCausalLM\"],\n  \"model_type\": \"%s\",\n  \"hidden_act\": \"%s\",\n"
            "  \"hidden_size\": %d,\n  \"intermediate_size\": %d,\n  \"num_hidden_layers\": %d,\n"
            "  \"num_attention_heads\": %d,\n  \"num_key_value_heads\": %d,\n  \"head_dim\": %d,\n"
            "  \"max_position_embeddings\": %d,\n  \"rms_norm_eps\": %s,\n  \"rope_theta\": %d.0,\n",
            prefix, family, c->gate->kind == LAYER_geglu ? "gelu_pytorch_tanh" : "silu", e->out, c->gate->out,
            c->blocks, a->heads, a->kv_heads, c->attention->out / a->heads, m->context,
            format("%g", (double)c->norm->config.norm.eps), a->rope);
        if (!qwen2)
            put_word(t, "  \"attention_bias\": false,\n");
        if (!qwen2 && !qwen3)
            put_word(t, "  \"mlp_bias\": false,\n");
        put_scaling(t, a);
    } else if (gpt2)
        put(t,
            "{\n  \"architectures\": [\"GPT2LMHeadModel\"],\n  \"model_type\": \"gpt2\",\n"
            "  \"activation_function\": \"gelu_new\",\n  \"n_embd\": %d,\n  \"n_inner\": %d,\n  \"n_layer\": %d,\n"
            "  \"n_head\": %d,\n  \"n_positions\": %d,\n  \"layer_norm_epsilon\": %s,\n",
            e->out, c->gate->out, c->blocks, a->heads, e->context, format("%g", (double)c->norm->config.norm.eps));
    else
        die("%s: is neither a Llama nor a GPT-2 as transformers know them, so it has no config.json; without --names "
            "hf, its weights are exported under their own names",
            file);
    put_ends(t, tokenizer);
    put(t, "  \"tie_word_embeddings\": %s,\n  \"torch_dtype\": \"float32\",\n  \"vocab_size\": %d\n}\n",
        c->tied ? "true" : "false", m->vocab);
}

/* ---- the output ---- */

/* Returns, per layer, how the columns of the next layer's input are grouped, for the linear layer before an attention
 * or a gate. */
static const struct columns *input_columns(const struct rt_stage *s) {
    struct columns *columns = NEW(struct columns, s->nlayers + 1);
    for (int i = 0; i + 1 < s->nlayers; i++) {
        const struct rt_layer *next = &s->layer[i + 1];
        if (next->kind == LAYER_headnorm && i + 2 < s->nlayers) /* attention follows */
            next++;
        if (row_of(next->kind)->team.groups)
            row_of(next->kind)->team.groups(next, columns[i].n);
    }
    return columns;
}

static void copy_beside(const char *path, const char *name, const char *folder) {
    const char *slash = strrchr(path, '/'), *from = format("%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, name);
    struct text text = {0};
    if (access(from, R_OK) != 0 || same_place(from, format("%s/%s", folder, name)))
        return;
    text.s = read_file(from, &text.n);
    write_file(format("%s/%s", folder, name), &text);
}

/* Writes the tokenizer's files, from a GGUF file's metadata, or by copying the files beside it. */
static void write_tokenizer(const struct tokenizer *t, const char *path, const char *folder, int context) {
    static const char *const beside[] = {"tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
                                         "generation_config.json"};
    struct gguf_meta gguf;
    struct stat st;
    if (gguf_map(path, &gguf)) {
        struct text json = tokenizer_json(t, path), config = tokenizer_config(t, path, context);
        write_file(format("%s/tokenizer.json", folder), &json);
        write_file(format("%s/tokenizer_config.json", folder), &config);
        return;
    }
    bool is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    const char *in = is_folder ? format("%s/", path) : path;
    if (is_folder) {
        copy_beside(in, "vocab.json", folder);
        copy_beside(in, "merges.txt", folder);
    } else {
        struct text json = {0};
        json.s = read_file(path, &json.n);
        write_file(format("%s/tokenizer.json", folder), &json);
    }
    for (int i = 0; i < 4; i++)
        copy_beside(in, beside[i], folder);
}

int export_published(const struct settings *settings, const char *dir, int64_t step) {
    const char *folder = folder_named(settings->output ? settings->output : "hf");
    char why[2 * DURABLE_PATH];
    if (!settings->args.model)
        die("--names hf: give the model script, which names its layers for transformers: --model MODEL.lua, with the "
            "-D of the training");
    struct script_args args = settings->args;
    args.uncut = true;
    struct spec *sp = script_units(&args, 1, 1);
    if (is_costs(sp))
        die("%s: is a cost model, which has no weights", settings->args.model);
    struct stage *st = costs_make(sp)->stage;
    int n = sp->stages + sp->names.sets, tensors;
    int64_t bytes;
    struct export_stage *stage = NEW(struct export_stage, n);
    const struct rt_stage **rt = NEW(const struct rt_stage *, n);
    for (int s = 0; s < n; s++)
        stage[s] = (struct export_stage){rt[s] = &st[s].rt, input_columns(&st[s].rt)};
    struct text config = {0};
    struct census census = take_census(rt, n);
    const struct tokenizer *tokenizer =
        settings->published.tokenizer ? read_tokenizer(settings->published.tokenizer) : NULL;
    if (census.units == 0)
        put_config(&config, sp, &census, settings->args.model, tokenizer);
    make_folder(folder);
    const char *path = format("%s/model.safetensors", folder);
    const struct export what = {dir, step, &sp->model->rt, stage, n};
    if (!export_named(&what, path, &bytes, &tensors, why, sizeof why))
        die("%s", why);
    if (census.units == 0)
        write_file(format("%s/config.json", folder), &config);
    else
        fprintf(stderr, "pianola: no config.json, since only the author of its units knows this model's\n");
    if (census.units == 0 && census.attention->config.attention.rope > 0)
        fprintf(stderr,
                "pianola: %s/config.json says max_position_embeddings = %d, the context of this --model; if its "
                "weights have learned more, give -D context=N\n",
                folder, sp->model->rt.context);
    if (tokenizer)
        write_tokenizer(tokenizer, settings->published.tokenizer, folder, sp->model->rt.context);
    if (settings->json)
        printf("{\"schema\": 1, \"file\": %s, \"step\": %lld, \"tensors\": %d, \"bytes\": %lld}\n", quoted(path),
               (long long)step, tensors, (long long)bytes);
    else
        printf("%s: step %lld, %d tensors, %.1f MB, in Hugging Face's names\n", path, (long long)step, tensors,
               1e-6 * (double)bytes);
    return 0;
}
