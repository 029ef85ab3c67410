/* Runs a rank that is a shared object: rank3 runs the main of rank3.so, next to it. So tests link the runtime once,
 * here, instead of once for each rank of each program. It finds rank3.so by the name it was started with, often a
 * symbolic link.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    char path[PATH_MAX];
    size_t length = strlen(argv[0]);
    if (length > 4 && strcmp(argv[0] + length - 4, ".gpu") == 0)
        length -= 4;
    snprintf(path, sizeof path, "%.*s.so", (int)length, argv[0]);
    void *program = dlopen(path, RTLD_NOW);
    int (*run)(int, char **) = NULL;
    if (program)
        *(void **)&run = dlsym(program, "main");
    if (!run)
        return fprintf(stderr, "error: %s\n", dlerror()), 2;
    return run(argc, argv);
}
