/* `pianola export-weights`: writes a checkpoint's parameters as one safetensors file, for other tools. */
#include "../../runtime/store/checkpoint.h"
#include "../../runtime/store/checkpoint_manifest.h"
#include "../../runtime/store/safetensors.h"
#include "base/put_json.h"
#include "cli/command.h"
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool has_manifest(const char *folder) { return access(format("%s/manifest.json", folder), F_OK) == 0; }

/* Checks the output path. The output is renamed into place once it is complete, and replaces any file of that name. So
 * the path must name a regular file that does not belong to a checkpoint. */
static void check_output(const char *path) {
    struct stat st;
    if (strcmp(path, "-") == 0)
        die("-o -: weights are written completely or not at all, which stdout cannot guarantee; name a file");
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        die("%s: is not a regular file", path);
    const char *slash = strrchr(path, '/');
    if (has_manifest(slash ? format("%.*s", (int)(slash - path) + 1, path) : "."))
        die("%s: is inside a checkpoint's folder; write it elsewhere", path);
}

/* Reports what was written, by reading it back. */
static void tell_written(const char *path, bool json) {
    char why[2 * DURABLE_PATH];
    struct safetensors *file = safetensors_open(path, why, sizeof why);
    if (!file)
        die("%s", why);
    int64_t bytes = file->n > 0 ? file->tensor[file->n - 1].end : 0;
    const char *size =
        bytes < 100000 ? format("%lld bytes", (long long)bytes) : format("%.1f MB", 1e-6 * (double)bytes);
    if (json)
        printf("{\"schema\": 1, \"file\": %s, \"step\": %s, \"tensors\": %d, \"bytes\": %lld}\n", quoted(path),
               safetensors_meta(file, "step"), file->n, (long long)bytes);
    else
        printf("%s: step %s, %d tensors, %s\n", path, safetensors_meta(file, "step"), file->n, size);
    safetensors_close(file);
}

int cmd_export(const struct settings *settings) {
    const char *dir = settings->file[0], *path = settings->output ? settings->output : "weights.safetensors";
    char why[2 * DURABLE_PATH] = "";
    int64_t step = settings->checkpoint.step;
    if (has_manifest(dir))
        die("%s: is a single checkpoint; give the folder that holds it, and --step", dir);
    if (settings->published.names) {
        if (step < 0 ? !checkpoint_latest(dir, &step, why, sizeof why) : !checkpoint_whole(dir, step, why, sizeof why))
            die("%s", why);
        if (*why)
            fprintf(stderr, "pianola: skipped a newer checkpoint: %s\n", why);
        return export_published(settings, dir, step);
    }
    if (settings->args.model || settings->published.tokenizer)
        die("--%s is for --names hf", settings->args.model ? "model" : "tokenizer");
    check_output(path);
    if (!checkpoint_export(dir, settings->checkpoint.step, path, why, sizeof why))
        die("%s", why);
    if (*why) /* newer ones are incomplete */
        fprintf(stderr, "pianola: skipped a newer checkpoint: %s\n", why);
    tell_written(path, settings->json);
    return 0;
}
