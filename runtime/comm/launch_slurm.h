/* The default meeting point of the ranks of a Slurm job step. */
#ifndef PIANOLA_LAUNCH_SLURM_H
#define PIANOLA_LAUNCH_SLURM_H
#include <stdbool.h>
#include <stddef.h>

enum { SLURM_HOST = 256 }; /* bytes of a host's name, with its NUL */

/* Writes the first host of a node list into host: n[001-003,7],gpu1 gives n001. Returns false if the list does not
 * begin with a host: bad syntax, a character that no host name has, or a name that does not fit. */
bool slurm_first_host(const char *list, char host[SLURM_HOST]);

/* Returns the host of rank 0, or NULL with why if the environment does not give it. */
const char *slurm_address(char *why, size_t nwhy);

/* Returns the port at which the ranks of this step meet, or NULL with why if the environment does not give it. */
const char *slurm_port(char *why, size_t nwhy);
#endif
