/* The runtime: layers, data, and the replay of a compiled program. Includes nothing from compiler/. */
#ifndef PIANOLA_RT_H
#define PIANOLA_RT_H
#include "compute.h"    /* a job's computations */
#include "data.h"       /* microbatches */
#include "rt_program.h" /* a compiled program */
#include "run.h"        /* its training */
#endif
