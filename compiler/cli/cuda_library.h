/* The library that trains on GPUs, opened at run time, so that the compiler itself needs none. */
#ifndef PIANOLA_CUDA_LIBRARY_H
#define PIANOLA_CUDA_LIBRARY_H
#include "../../runtime/process/train_cuda.h"

/* Opens the library and returns its training function. Units find its functions. Dies if there is none. */
cuda_train_function *cuda_library(void);
#endif
