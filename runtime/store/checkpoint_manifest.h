/* Functions shared by checkpoint_manifest.c, which handles folders and manifests, and checkpoint.c, which handles the
 * files' contents. */
#ifndef PIANOLA_CHECKPOINT_MANIFEST_H
#define PIANOLA_CHECKPOINT_MANIFEST_H
#include "checkpoint.h"
#include "durable.h"

#define CHECKPOINT_FORMAT "pianola 1"

struct path {
    char s[DURABLE_PATH];
};
struct path step_path(const char *dir, int64_t step);
struct path stage_path(const char *dir, int64_t step, int stage);

struct entry { /* a stage's file */
    int64_t bytes;
    uint64_t hash;
};
struct manifest {
    struct checkpoint_run run;
    int n;
    struct entry *file; /* one per stage's file: 0, 1, … */
};
/* Reads a manifest. The caller frees out->file, even after false. */
bool manifest_read(const char *dir, int64_t step, struct manifest *out, char *why, size_t nwhy);
/* Returns whether the manifest matches its own checksum, and all files match the checksums in it. */
bool checkpoint_whole(const char *dir, int64_t step, char *why, size_t nwhy);
/* Writes a message into why; always returns false. */
bool checkpoint_tell(char *why, size_t nwhy, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#endif
