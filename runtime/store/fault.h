/* Errors of ranks as JSON, for --json: the object `error` of compiler/formats/schema.json, on stdout. Whoever reports
 * an error that ends the process on stderr tells it here too. */
#ifndef RT_FAULT_H
#define RT_FAULT_H
#include <stdbool.h>

/* Sets whether errors are also printed as JSON; at first they are not. */
void fault_json(bool on);
/* Prints the message, if asked to, unless another one was printed before. Its further lines are the reasons. Takes no
 * lock and no memory, so that a signal handler may call it. */
void fault_tell(const char *message);
#endif
