/* The shared libraries that units are linked with: the loader's choice may differ from the one that was checked. */
#ifndef PIANOLA_UNIT_LIBRARIES_H
#define PIANOLA_UNIT_LIBRARIES_H
#include "unit_layer.h"
#include <stddef.h>

/* Returns whether this process has loaded exactly the libraries that the unit names. Otherwise sets why. */
bool unit_libraries_loaded(const struct rt_unit *unit, char *why, size_t nwhy);
#endif
