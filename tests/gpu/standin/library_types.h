/* Stand-in for CUDA's header of this name, which cuDNN's header includes. cudaDataType is in cuda_runtime_api.h. */
#ifndef STANDIN_LIBRARY_TYPES_H
#define STANDIN_LIBRARY_TYPES_H
#include "cuda_runtime_api.h"
typedef enum libraryPropertyType_t { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL } libraryPropertyType;
#endif
