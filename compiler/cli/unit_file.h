/* Checks of the files that a model's units name, before they are compiled, linked or copied. */
#ifndef PIANOLA_UNIT_FILE_H
#define PIANOLA_UNIT_FILE_H
#include "ir/model_spec.h"

/* Dies with the unit's name if a file is missing, is not a library although it must be, is for another machine, or does
 * not have the script's hash. Returns a library's name, size and hash. */
struct rt_unit_library check_unit_file(const struct unit_files *files, int i);
#endif
