/* Reads tokenizer_config.json, which accompanies Hugging Face's other tokenizer files: which tokens begin and end
 * texts, and whether they are added. If there is a tokenizer.json, its post_processor says what is added, and
 * transformers ignore this file. */
#include "base/read_file.h"
#include "base/read_json.h"
#include "tokenizer.h"
#include <string.h>
#include <unistd.h>

struct ends {
    const char *bos, *eos; /* names, or NULL */
    bool adds[2], said[2]; /* add_bos_token, add_eos_token */
};

/* Reads "name", {"content": "name", …} or null. */
static const char *read_token_name(struct json_in *j) {
    const char *name = NULL;
    if (json_peek(j) != '{')
        return json_string_or_null(j);
    for (json_open(j, '{'); json_more(j, '}');)
        if (strcmp(json_name(j), "content") == 0)
            name = json_string_or_null(j);
        else
            json_skip(j);
    return name;
}

static struct ends read_ends(const char *file) {
    struct ends ends = {0};
    size_t n;
    char *s = read_file(file, &n);
    struct json_in json = {.file = file, .from = s, .at = s, .end = s + n}, *j = &json;
    for (json_open(j, '{'); json_more(j, '}');) {
        const char *name = json_name(j);
        int which = strcmp(name, "add_eos_token") == 0;
        if (strcmp(name, "bos_token") == 0)
            ends.bos = read_token_name(j);
        else if (strcmp(name, "eos_token") == 0)
            ends.eos = read_token_name(j);
        else if (which || strcmp(name, "add_bos_token") == 0) {
            ends.said[which] = json_peek(j) != 'n';
            ends.adds[which] = json_true(j);
        } else
            json_skip(j);
    }
    json_close(j);
    return ends;
}

void read_tokenizer_config(struct tokenizer *t, const char *folder, bool decides) {
    const char *file = format("%s/tokenizer_config.json", folder);
    if (access(file, F_OK) != 0)
        return;
    struct ends ends = read_ends(file);
    const char *const name[] = {ends.bos, ends.eos}, *const kind[] = {"bos", "eos"};
    struct around *const around[] = {&t->front, &t->behind};
    t->first_name = ends.bos;
    t->last_name = ends.eos;
    for (int i = 0; i < 2; i++) {
        bool has = false;
        for (int k = 0; k < around[i]->n; k++)
            has |= name[i] && around[i]->name[k] && strcmp(around[i]->name[k], name[i]) == 0;
        if (decides && ends.adds[i] && !name[i])
            die("%s: add_%s_token is true, but there is no %s_token", file, kind[i], kind[i]);
        if (decides && ends.adds[i])
            add_around(t, around[i], name[i], -1);
        else if (!decides && ends.said[i] && name[i] && ends.adds[i] != has)
            fprintf(stderr,
                    "pianola: %s says add_%s_token = %s, but the post_processor of tokenizer.json adds %s'%s' %s "
                    "texts; it takes precedence, as in transformers\n",
                    file, kind[i], ends.adds[i] ? "true" : "false", has ? "" : "no ", tame(name[i]),
                    i == 0 ? "in front of" : "behind");
    }
}
