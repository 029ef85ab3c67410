#include "path.h"
#include "base.h"
#include <stdlib.h>
#include <string.h>

const char *resolved_path(const char *path) {
    char *real = realpath(path, NULL);
    const char *at = real ? copy_string(real) : NULL;
    free(real);
    return at;
}

const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool has_ending(const char *path, const char *ending) {
    size_t n = strlen(path), k = strlen(ending);
    return n > k && strcmp(path + n - k, ending) == 0;
}
