/* Weights from files of other programs: the layers' names and their layout there.
 *
 * A layer has a name in such files: `hf` in safetensors of Hugging Face's transformers, and `gguf` in llama.cpp's. It
 * is the common part of its parameters' names, before `.weight` and `.bias`; gamma and tokens are weights, beta is a
 * bias. A semicolon separates the names of several parameters: an embedding's tokens and positions, `wte;wpe`, or a
 * headnorm's scales of queries and keys. Braces list the tensors of a parameter whose columns several tensors hold:
 * `self_attn.{q,k,v}_proj`. Linear layers are out x in there, and transposed when read; = before the name means that
 * they are in x out, as here. ~H after a name in braces means that llama.cpp has permuted the rows of its H heads for a
 * rope that pairs neighbours; reading reverses this.
 *
 * A unit's parameters keep their own names and layout, after the layer's name and a dot, or alone if the layer's name
 * is empty. A unit may instead name a file of its own, with tensors by these names, or by the parameters' own. Frozen
 * parameters are always there; the model's file may have them too, with the same values. Other frozen layers name a
 * file, which has their parameters under the layer's name.
 *
 * A name in a file may lack its first part, up to the first dot: models without their head, such as GPT-2, are saved
 * this way. Shapes must be the same. */
#ifndef PIANOLA_IMPORT_H
#define PIANOLA_IMPORT_H
#include "named.h"
#include "rt.h"

/* Checks that the file has all tensors that the stage reads, and that the stage's layers use the file's rope. Marks
 * tensors as used. */
bool import_check(struct named_file *file, const struct rt_model *m, const struct rt_stage *s, char *why, size_t nwhy);
/* Checks, once all stages are checked, that no tensor is left. Returns true with why not empty for a warning that names
 * tensors that are not read. */
bool import_check_rest(struct named_file *file, char *why, size_t nwhy);
/* Returns whether a layer of the stage differs from the file's information on its model in a number that the weights'
 * shapes do not show. what: receives both numbers and `from`, the file that has the information. The difference may be
 * intended, such as a larger base of rope for a longer context. */
bool import_differs(struct named_file *file, const char *from, const struct named_said *said, const struct rt_stage *s,
                    char *what, size_t nwhat);
/* Sets a stage's first weights, as host_init does: weight_count fp32 values, from the file, or from the seed if file is
 * NULL. */
bool first_weights(struct named_file *file, uint64_t seed, const struct rt_model *m, const struct rt_stage *s, float *w,
                   char *why, size_t nwhy);
/* Returns the file with a layer's frozen parameters, or NULL if it has none. */
const char *frozen_file(const struct rt_model *m, const struct rt_layer *l);
/* Sets a stage's frozen parameters, from their layers' own files. */
bool frozen_weights(const struct rt_model *m, const struct rt_stage *s, float *w, char *why, size_t nwhy);
#endif
