#include "run_saving.h"
#include "../../runtime/store/checkpoint_fit.h"
#include "../../runtime/store/durable.h"

static void lock(const struct settings *settings, const struct rt_program *p) {
    static int held = -1;
    char why[DURABLE_PATH + 512];
    if (!checkpoint_lock(&held, settings->checkpoint.folder, 0, format("%s in one process", p->name), why, sizeof why))
        die("%s", why);
    if (*why)
        fprintf(stderr, "pianola: warning: %s\n", why);
    if (!settings->checkpoint.resume && !checkpoint_none(settings->checkpoint.folder))
        die("%s: holds checkpoints already: go on with --resume, or name another folder", settings->checkpoint.folder);
}

static struct checkpoint_run identity(const struct settings *settings, const struct rt_program *p,
                                      const struct data *data) {
    struct checkpoint_run is = {.seed = settings->seed, .steps = settings->train.steps, .context = p->model->context};
    is.most = is.least = updates_per_step(p->batches, &p->stage[0]);
    for (int s = 1; s < p->stages; s++) {
        int64_t n = updates_per_step(p->batches, &p->stage[s]);
        is.most = n > is.most ? n : is.most;
        is.least = n < is.least ? n : is.least;
    }
    data_identity(data, &is.data_bytes, &is.data_hash);
    return is;
}

static const char *command(const struct settings *settings) {
    return format("%s%s", settings->command, settings->checkpoint.resume ? "" : " --resume");
}

const char *how_to_go_on(const struct settings *settings) {
    return settings->checkpoint.folder ? format("; to go on from the newest checkpoint: %s", command(settings)) : "";
}

const struct saving *open_saving(const struct settings *settings, const struct rt_program *p, struct data *data) {
    const char *dir = settings->checkpoint.folder;
    char note[DURABLE_PATH + 512];
    if (!dir)
        return NULL;
    struct saving *saving = NEW(struct saving, 1);
    *saving = (struct saving){.dir = dir,
                              .every = settings->checkpoint.every,
                              .keep = settings->checkpoint.keep,
                              .writes = settings->train.steps > 0};
    saving->how = command(settings);
    saving->is = identity(settings, p, data);
    lock(settings, p);
    if (!settings->checkpoint.resume)
        return saving;
    struct checkpoint_found found = checkpoint_find(dir);
    const struct checkpoint_wish wish = {settings->checkpoint.new_data, settings->train.allow_nonfinite};
    bool trains = settings->train.steps > 0;
    if (!found.ok ||
        (found.some && trains && !checkpoint_fits(dir, &found, &saving->is, &wish, found.why, sizeof found.why)))
        die("%s", found.why);
    if (!found.some)
        return saving;
    saving->loads = true;
    saving->from = saving->loaded = found.step;
    saving->is.nonfinite = found.run.nonfinite;
    saving->is.steps = found.run.steps > 0 ? found.run.steps : settings->train.steps;
    saving->is.sequences = checkpoint_place(dir, &found, &saving->is, sequences_per_step(p->model), note, sizeof note);
    if (trains && *note)
        fprintf(stderr, "pianola: %s\n", note);
    data_begin(data, found.step, saving->is.sequences);
    return saving;
}
