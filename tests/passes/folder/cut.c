/* Preloaded into a program, ends it right before the CUT-th rename or unlink of a file, like kill -9 or a power
 * failure. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void count(void) {
    static int n;
    const char *cut = getenv("CUT");
    if (cut && ++n == atoi(cut))
        _exit(9);
}

int rename(const char *from, const char *to) {
    count();
    int (*real)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    return real(from, to);
}

int unlink(const char *path) {
    count();
    int (*real)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    return real(path);
}
