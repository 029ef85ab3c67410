/* `pianola generate`: continues a text with a language model, on one rank of the host. */
#include "../../runtime/layers/decode.h"
#include "../../runtime/store/hash.h"
#include "../../runtime/store/import.h"
#include "../../runtime/store/seconds.h"
#include "base/gguf_meta.h"
#include "base/put_json.h"
#include "cli/command.h"
#include "cli/pipeline.h"
#include "tokens.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_ROWS = 64 }; /* tokens of the prompt decoded at once */

/* ---- the model ---- */

/* Opens the model, a stage per unit, all on one rank, and reads its weights from the file. rows: upper bound on the
 * length of a sequence. */
static struct decode_model open_model(const struct settings *settings, int64_t rows) {
    char why[1000];
    struct spec *sp = script_units(&settings->args, 1, 1);
    if (is_costs(sp))
        die("%s: is a cost model, which has no layers", settings->args.model);
    struct stage *st = costs_make(sp)->stage;
    int sets = sp->stages + sp->names.sets;
    struct rt_stage *stage = NEW(struct rt_stage, sets);
    float **weight = NEW(float *, sets);
    for (int s = 0; s < sets; s++)
        stage[s] = st[s].rt;
    tell_difference(settings->published.weights, st, sets, rows);
    const char *refused = decode_refuses(&sp->model->rt, stage, sp->stages);
    if (refused)
        die("%s: %s", settings->args.model, refused);
    struct named_file *file = named_open(settings->published.weights, why, sizeof why);
    bool ok = file;
    for (int s = 0; ok && s < sets; s++)
        ok = import_check(file, &sp->model->rt, &stage[s], why, sizeof why);
    ok = ok && import_check_rest(file, why, sizeof why);
    if (ok && *why)
        fprintf(stderr, "pianola: warning: %s\n", why);
    for (int s = 0; ok && s < sets; s++) {
        weight[s] = NEW(float, weight_count(&sp->model->rt, &stage[s]));
        ok = first_weights(file, 0, &sp->model->rt, &stage[s], weight[s], why, sizeof why);
    }
    if (!ok)
        die("%s", why);
    named_close(file);
    return (struct decode_model){&sp->model->rt, stage, sp->stages, weight,
                                 sp->names.tables > 0 ? weight[sp->stages] : NULL};
}

/* Returns the number of positions that a sequence may have. */
static int64_t positions(const struct decode_model *model) {
    const struct rt_layer *first = &model->stage[0].layer[0];
    return first->kind == LAYER_embedding && first->context > 0 ? first->context : INT32_MAX;
}

/* ---- the prompt ---- */

struct tokens {
    int32_t *id;
    size_t n, cap;
};
static void add_id(struct tokens *tokens, int64_t id) {
    GROW(tokens->id, tokens->cap, tokens->n + 1);
    tokens->id[tokens->n++] = (int32_t)id;
}
static void append_tokens(void *with, const uint32_t *id, size_t n, size_t bytes) {
    (void)bytes;
    for (size_t i = 0; i < n; i++)
        add_id(with, id[i]);
}
static void add_text(struct tokens *tokens, struct tokenizer *t, const char *text) {
    encode(t, text, strlen(text), append_tokens, tokens);
}

static struct tokens read_prompt(const struct settings *settings, struct tokenizer *t) {
    struct tokens tokens = {0};
    int64_t begins = token_named(t, "<|im_start|>"), ends = token_named(t, "<|im_end|>");
    if (settings->generate.chat && (begins < 0 || ends < 0))
        die("--chat: the tokenizer has no <|im_start|> and <|im_end|>, so its model does not know ChatML");
    if (settings->generate.chat) {
        add_id(&tokens, begins);
        add_text(&tokens, t, format("user\n%s", settings->generate.prompt));
        add_id(&tokens, ends);
        add_text(&tokens, t, "\n");
        add_id(&tokens, begins);
        add_text(&tokens, t, "assistant\n");
    } else {
        const struct around *front = in_front_of_text(t);
        for (int i = 0; i < front->n; i++)
            add_id(&tokens, front->id[i]);
        add_text(&tokens, t, settings->generate.prompt);
    }
    if (tokens.n == 0)
        die("--prompt is empty: give the text to continue");
    return tokens;
}

/* ---- sampling ---- */

struct choice {
    float weight;
    int32_t token;
};
static int heavier(const void *a, const void *b) {
    const struct choice *x = a, *y = b;
    return x->weight != y->weight ? (x->weight < y->weight) - (x->weight > y->weight) : x->token - y->token;
}

static int32_t most_probable(const struct settings *settings, const float *logits, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!isfinite(logits[i]))
            die("%s: the model computes %g for a token: its weights are damaged, or belong to another model",
                settings->published.weights, (double)logits[i]);
        if (logits[i] > logits[best])
            best = i;
    }
    return best;
}

/* Returns e^x for x <= 0, by squaring, since a library's last bit may differ between machines. */
static double exponential(double x) {
    double y = x / 1024, e = 1 + y * (1 + y / 2 * (1 + y / 3 * (1 + y / 4)));
    for (int i = 0; i < 10; i++)
        e *= e;
    return x < -700 ? 0 : e;
}

/* Draws a token by nucleus sampling (Holtzman 2020, section 3.1) at a temperature. The random number is a function of
 * the seed and the position. */
static int32_t draw_token(const struct settings *settings, const float *logits, int32_t n, struct choice *choice,
                          int64_t place) {
    int32_t best = most_probable(settings, logits, n), many = 0;
    double all = 0, kept = 0, sum = 0;
    if (settings->generate.temperature == 0)
        return best;
    for (int32_t i = 0; i < n; i++) {
        double weight = exponential(((double)logits[i] - logits[best]) / settings->generate.temperature);
        choice[i] = (struct choice){(float)weight, i};
        all += choice[i].weight;
    }
    sort(choice, (size_t)n, sizeof *choice, heavier);
    while (many == 0 || (many < n && kept < settings->generate.top_p * all))
        kept += choice[many++].weight;
    double at = (double)(host_hash(settings->seed, (uint64_t)place) >> 11) * 0x1p-53 * kept;
    for (int32_t i = 0; i < many; i++)
        if ((sum += choice[i].weight) > at)
            return choice[i].token;
    return choice[many - 1].token;
}

/* ---- writing ---- */

/* Returns the number of bytes at the end that begin an incomplete character. */
static size_t unfinished(const char *s, size_t n) {
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)s[n - back];
        size_t whole = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        if ((c & 0xc0) != 0x80)
            return whole > back ? back : 0;
    }
    return 0;
}

struct answer {
    struct text text;
    size_t shown;
    struct tokens tokens;
    double began, first; /* seconds: start of the prompt; first token */
    bool ended;
};

static void show(struct answer *answer, bool last) {
    size_t n = answer->text.n - (last ? 0 : unfinished(answer->text.s, answer->text.n));
    fwrite(answer->text.s + answer->shown, 1, n - answer->shown, stdout);
    if (fflush(stdout) != 0)
        exit(2); /* the exit handler reports the failure */
    answer->shown = n;
}

static void put_ids(struct text *t, const struct tokens *tokens) {
    put(t, "[");
    for (size_t i = 0; i < tokens->n; i++)
        put(t, "%s%d", i ? ", " : "", tokens->id[i]);
    put(t, "]");
}

static void print_answer_json(const struct settings *settings, const struct tokens *prompt, const struct answer *answer,
                              int64_t bytes, double end) {
    struct text t = {0};
    double took = end - answer->first;
    put(&t, "{\n  \"schema\": 1,\n  \"prompt\": %s,\n  \"prompt_tokens\": ", quoted(settings->generate.prompt));
    put_ids(&t, prompt);
    put(&t, ",\n  \"text\": %s,\n  \"tokens\": ", quoted_bytes(answer->text.s, answer->text.n));
    put_ids(&t, &answer->tokens);
    put(&t, ",\n  \"ended\": %s,\n  \"prompt_seconds\": %.4f,\n  \"tokens_per_second\": %.4g,\n  \"bytes\": %lld\n}\n",
        answer->ended ? "true" : "false", answer->first - answer->began,
        answer->tokens.n > 1 ? (double)(answer->tokens.n - 1) / took : 0, (long long)bytes);
    fwrite(t.s, 1, t.n, stdout);
}

static void check_generation(const struct settings *settings) {
    if (settings->nfiles)
        die("`generate` takes no file, but got '%s'; name the model's weights with --weights", settings->file[0]);
    if (!settings->published.weights)
        die("`generate` needs --weights FILE, a model's GGUF or safetensors file");
    if (!settings->generate.prompt)
        die("`generate` needs --prompt TEXT, the text to continue");
}

/* Finds the tokenizer if none is given: in the GGUF file itself, or beside safetensors, as tokenizer.json or as
 * vocab.json and merges.txt. */
static struct tokenizer *find_tokenizer(const struct settings *settings) {
    const char *slash = strrchr(settings->published.weights, '/');
    struct gguf_meta g;
    if (settings->published.tokenizer)
        return read_tokenizer(settings->published.tokenizer);
    if (gguf_map(settings->published.weights, &g))
        return read_tokenizer(settings->published.weights);
    const char *folder = format("%.*s", slash ? (int)(slash - settings->published.weights) + 1 : 2,
                                slash ? settings->published.weights : "./");
    const char *json = format("%stokenizer.json", folder);
    bool older = access(json, F_OK) != 0 && access(format("%svocab.json", folder), F_OK) == 0;
    return read_tokenizer(older ? folder : json);
}

int cmd_generate(const struct settings *given) {
    struct settings settings = *given;
    check_generation(&settings);
    model_of_weights(&settings.args, settings.published.weights);
    struct tokenizer *t = find_tokenizer(&settings);
    struct tokens prompt = read_prompt(&settings, t);
    int64_t few = settings.generate.tokens < INT32_MAX ? settings.generate.tokens : INT32_MAX;
    struct decode_model model = open_model(&settings, (int64_t)prompt.n + few);
    int64_t most = positions(&model), left = most - (int64_t)prompt.n;
    int32_t vocab = model.m->vocab;
    if (token_limit(t) > (uint32_t)vocab)
        die("the tokenizer has %u tokens, but the model has %d: they do not belong together", token_limit(t), vocab);
    if (left <= 0)
        die("the prompt has %zu tokens, but the model has only %lld positions", prompt.n, (long long)most);
    int64_t room = settings.generate.tokens < left ? (int64_t)prompt.n + settings.generate.tokens : most;
    host_blas();
    struct decoder *d = decoder_open(&model, (int32_t)room, MOST_ROWS);
    if (!d)
        die("no memory for the keys and values of %lld tokens; give fewer --tokens", (long long)room);
    struct answer answer = {.began = seconds()};
    struct choice *choice = NEW(struct choice, vocab);
    const float *logits = NULL;
    int64_t turn = settings.generate.chat ? token_named(t, "<|im_end|>") : -1; /* whatever the file says */
    for (size_t at = 0, n; at < prompt.n; at += n) {
        n = prompt.n - at < MOST_ROWS ? prompt.n - at : MOST_ROWS;
        logits = decode_next(d, prompt.id + at, (int32_t)n);
    }
    put(&answer.text, "%s", "");
    for (int64_t place = (int64_t)prompt.n; place < room; place++) {
        int32_t token = draw_token(&settings, logits, vocab, choice, place);
        if (answer.tokens.n == 0)
            answer.first = seconds();
        if ((answer.ended = token == end_of_text(t) || token == end_of_turn(t) || token == turn))
            break;
        add_id(&answer.tokens, token);
        decode(t, (uint32_t)token, &answer.text);
        if (!settings.json)
            show(&answer, false);
        if (place + 1 < room)
            logits = decode_next(d, &token, 1);
    }
    double end = seconds();
    if (settings.json)
        print_answer_json(&settings, &prompt, &answer, decoder_bytes(d), end);
    else {
        show(&answer, true);
        printf("\n");
        fprintf(stderr, "pianola: %s of prompt in %.2f s, %s at %.1f a second%s\n", counted((int64_t)prompt.n, "token"),
                answer.first - answer.began, counted((int64_t)answer.tokens.n, "token"),
                answer.tokens.n > 1 ? (double)(answer.tokens.n - 1) / (end - answer.first) : 0,
                answer.ended   ? ""
                : room == most ? "; it has no more positions"
                               : "; --tokens N writes more");
    }
    decoder_close(d);
    return 0;
}
