/* Errors of ranks as JSON, for --json: the object `error` of compiler/formats/schema.json, on stdout. Code that reports
 * an error on stderr and ends the process also reports it here. */
#ifndef RT_FAULT_H
#define RT_FAULT_H
#include <stdbool.h>

/* Sets whether errors are also printed as JSON; at first they are not. */
void fault_json(bool on);
/* Prints the message, if enabled, unless another one was printed before. Lines after its first are the reasons. Uses no
 * locks and allocates nothing, so that a signal handler may call it. */
void fault_tell(const char *message);
#endif
