#include "unit_libraries.h"
#include "store/sha256.h"
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Returns 1 if an object of this process is the library, which ends the walk. */
static int is_library(struct dl_phdr_info *object, size_t size, void *data) {
    const struct rt_unit_library *library = data;
    char hex[SHA256_HEX];
    struct stat st;
    (void)size;
    return stat(object->dlpi_name, &st) == 0 && st.st_size == library->bytes &&
           sha256_file(object->dlpi_name, hex) >= 0 && strcmp(hex, library->sha256) == 0;
}

bool unit_libraries_loaded(const struct rt_unit *unit, char *why, size_t nwhy) {
    for (int i = 0; i < unit->code->nlibraries; i++) {
        const struct rt_unit_library *library = &unit->code->library[i];
        if (dl_iterate_phdr(is_library, (void *)library))
            continue;
        snprintf(why, nwhy,
                 "unit '%s': the library %s that is loaded is not the one that was checked: it was altered, or another "
                 "library of that name (SONAME) was loaded before it",
                 unit->name, library->name);
        return false;
    }
    return true;
}
