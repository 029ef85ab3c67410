#include "checkpoint_fit.h"
#include <stdio.h>

struct checkpoint_found checkpoint_find(const char *dir) {
    struct checkpoint_found found = {.step = 0};
    found.some = checkpoint_latest(dir, &found.step, found.why, sizeof found.why);
    if (found.some && *found.why)
        fprintf(stderr, "pianola: %s; continuing from step %lld\n", found.why, (long long)found.step);
    found.ok = found.some ? checkpoint_read_run(dir, found.step, &found.run, found.why, sizeof found.why)
                          : checkpoint_none(dir);
    if (!found.some && found.ok)
        fprintf(stderr, "pianola: %s holds no complete checkpoint yet: starting at step 0\n", dir);
    return found;
}

static bool same_data(const struct checkpoint_run *a, const struct checkpoint_run *b) {
    return a->data_bytes == b->data_bytes && a->data_hash == b->data_hash;
}
static bool same_cut(const struct checkpoint_run *found, const struct checkpoint_run *now) {
    return now->data_bytes == 0 || found->context < 0 || found->context == now->context;
}

bool checkpoint_fits(const char *dir, const struct checkpoint_found *found, const struct checkpoint_run *now,
                     const struct checkpoint_wish *wish, char *why, size_t n) {
    const struct checkpoint_run *was = &found->run;
    if (was->nonfinite && !wish->allow_nonfinite)
        snprintf(why, n,
                 "%s: its newest checkpoint, of step %lld, has numbers that are not finite: remove such checkpoints to "
                 "continue from an earlier one, or give --allow-nonfinite",
                 dir, (long long)found->step);
    else if (was->seed != now->seed)
        snprintf(why, n, "%s: belongs to a run with --seed %llu, not %llu", dir, (unsigned long long)was->seed,
                 (unsigned long long)now->seed);
    else if (!same_data(was, now) && !wish->new_data)
        snprintf(why, n,
                 "%s: belongs to a run on other data: %lld bytes with hash %016llx, not %lld with %016llx; --new-data "
                 "continues with this data, from its beginning",
                 dir, (long long)was->data_bytes, (unsigned long long)was->data_hash, (long long)now->data_bytes,
                 (unsigned long long)now->data_hash);
    else if (!same_cut(was, now) && !wish->new_data)
        snprintf(why, n,
                 "%s: belongs to a run on sequences of %lld tokens, not %lld, so it is unknown which ones it has read; "
                 "--new-data begins with the data's first sequence",
                 dir, (long long)was->context, (long long)now->context);
    else if (was->most != now->most || was->least != now->least)
        snprintf(why, n,
                 "%s: belongs to a run with %lld to %lld updates of a stage per step, not %lld to %lld, and the "
                 "optimizer counts updates: give the schedule the same batches and update",
                 dir, (long long)was->least, (long long)was->most, (long long)now->least, (long long)now->most);
    else
        return true;
    return false;
}

int64_t checkpoint_place(const char *dir, const struct checkpoint_found *found, const struct checkpoint_run *now,
                         int64_t each, char *note, size_t n) {
    *note = 0;
    if (!same_data(&found->run, now) || !same_cut(&found->run, now)) {
        snprintf(note, n, "from step %lld on, the data is different: it begins with its first sequence",
                 (long long)found->step + 1);
        return 0;
    }
    if (found->run.sequences >= 0 || now->data_bytes == 0)
        return found->run.sequences >= 0 ? found->run.sequences : found->step * each;
    snprintf(note, n,
             "warning: %s does not say how many sequences it has read: assuming %lld, since each step of this run "
             "reads %lld",
             dir, (long long)(found->step * each), (long long)each);
    return found->step * each;
}
