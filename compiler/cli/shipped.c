/* The schedules shipped with this program, for `pianola show --list` and `pianola tune`. */
#include "base/path.h"
#include "base/read_file.h"
#include "command.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const places[] = {"../schedules", "../share/pianola/schedules"};

/* Returns the folder that holds this program; NULL: unknown, as in a page. */
static const char *own_folder(void) {
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return NULL;
    self[n] = 0;
    *strrchr(self, '/') = 0;
    return copy_string(self);
}

const char *shipped_folder(void) {
    const char *self = own_folder();
    for (int i = 0; self && i < 2; i++) {
        const char *found = resolved_path(format("%s/%s", self, places[i]));
        if (found)
            return found;
    }
    return NULL;
}

static const char *needed_folder(void) {
    const char *folder = shipped_folder(), *self = own_folder();
    if (!self)
        die("cannot find the folder of this program: %s", strerror(errno));
    if (!folder)
        die("no schedules in %s/%s or %s/%s", self, places[0], self, places[1]);
    return folder;
}

static int is_script(const struct dirent *e) {
    const char *dot = strchr(e->d_name, '.'); /* excludes pianola.d.lua, which is for editors */
    return dot && strcmp(dot, ".lua") == 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

/* Returns the folder, relative to the current one if it lies inside. */
static const char *near_folder(void) {
    const char *folder = needed_folder();
    char here[4096];
    size_t inside = getcwd(here, sizeof here) ? strlen(here) : 0;
    return inside > 1 && strncmp(folder, here, inside) == 0 && folder[inside] == '/' ? folder + inside + 1 : folder;
}

const char *shipped_file(const char *name) { return format("%s/%s", near_folder(), name); }

const char *const *shipped_schedules(int *n) {
    const char *folder = near_folder(), **path;
    struct dirent **entry;
    *n = scandir(folder, &entry, is_script, by_bytes);
    if (*n < 0)
        die("%s: %s", folder, strerror(errno));
    path = NEW(const char *, *n);
    for (int i = 0; i < *n; i++) {
        path[i] = format("%s/%s", folder, entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
    return path;
}

/* Prints each schedule with its first line, a comment that describes it. */
int list_schedules(void) {
    const char *folder = needed_folder();
    struct dirent **entry;
    int n = scandir(folder, &entry, is_script, by_bytes);
    if (n < 0)
        die("%s: %s", folder, strerror(errno));
    printf("In %s:\n\n", folder);
    int width = 0;
    for (int i = 0; i < n; i++)
        width = (int)strlen(entry[i]->d_name) > width ? (int)strlen(entry[i]->d_name) : width;
    for (int i = 0; i < n; i++) {
        size_t size;
        const char *title = read_file(format("%s/%s", folder, entry[i]->d_name), &size);
        title += strspn(title, "- ");
        printf("  %-*s  %.*s\n", width, entry[i]->d_name, (int)strcspn(title, "\n"), title);
        free(entry[i]);
    }
    free(entry);
    return 0;
}
