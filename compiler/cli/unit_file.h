/* Checks of the files that a model's units name, before they are compiled, linked or copied. */
#ifndef PIANOLA_UNIT_FILE_H
#define PIANOLA_UNIT_FILE_H
#include "ir/model_spec.h"

/* Dies with the unit's name if a file is missing, or if a library is none, is one for another machine, or has another
 * hash than the script says. Returns what a library is. */
struct rt_unit_library check_unit_file(const struct unit_files *files, int i);
#endif
