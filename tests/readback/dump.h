/* All that a rank's program hands to rank_main, as text: a fact to a line, floats by their bits, waits and groups
 * written out. Two programs that say the same print the same. */
#ifndef PIANOLA_DUMP_H
#define PIANOLA_DUMP_H
#include "rt.h"
#include <stdio.h>

void dump(FILE *f, const struct rt_program *p);
#endif
