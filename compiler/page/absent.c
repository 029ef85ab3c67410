/* Stubs for functions that a page lacks: training, and access to a machine's processors and files. */
#include "cli/command.h"
#include "cli/redraw.h"
#include "cli/training.h"

static _Noreturn void refuse_here(const char *what) {
    die("%s is not available in this page; install Pianola, and run it in a terminal", what);
}

int cmd_run(const struct settings *settings) { (void)settings, refuse_here("`run`"); }
int cmd_check_unit(const struct settings *settings) { (void)settings, refuse_here("`check-unit`"); }
int cmd_profile(const struct settings *settings) { (void)settings, refuse_here("`profile`"); }
int cmd_tune(const struct settings *settings) { (void)settings, refuse_here("`tune`"); }
int cmd_generate(const struct settings *settings) { (void)settings, refuse_here("`generate`"); }
int cmd_tokenize(const struct settings *settings) { (void)settings, refuse_here("`tokenize`"); }
int cmd_export(const struct settings *settings) { (void)settings, refuse_here("`export-weights`"); }

int watch(const struct settings *settings, struct gist (*frame)(const struct settings *, struct text *)) {
    (void)settings, (void)frame, refuse_here("`show --watch`");
}

/* Stubs for `compare --train`, which calls check_device first. */
void check_device(const struct compile *c, bool cuda) { (void)c, (void)cuda, refuse_here("training"); }
struct trained train(const struct compile *c, const struct settings *settings, struct data *data, int64_t steps,
                     int64_t kept, const char *what, struct listener listener) {
    (void)c, (void)settings, (void)data, (void)steps, (void)kept, (void)what, (void)listener, refuse_here("training");
}
struct data *data_open(const struct rt_model *m, const char *const *paths, uint64_t seed, char *why, size_t nwhy) {
    (void)m, (void)paths, (void)seed, (void)why, (void)nwhy, refuse_here("training");
}
void data_close(struct data *d) { (void)d; }
const char *host_blas(void) { return "none"; }
void host_free(const struct rt_program *p, char **arena) { (void)p, (void)arena; }
