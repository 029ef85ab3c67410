/* Weights from files of others: what a model's layers are called there, and how it lies there.
 *
 * A layer's name in such files, `hf` for safetensors as Hugging Face's transformers has them and `gguf` for
 * llama.cpp's, is that of its parameters up to `.weight` and `.bias`: gamma and tokens are weights, beta is a bias. An
 * embedding with positions names these behind a semicolon: `wte;wpe`; and so does a headnorm the keys' scales. What
 * lies side by side here and is several tensors there is in braces: `self_attn.{q,k,v}_proj`. Linear layers are out x
 * in there, and turned as they are read; with = in front of the name they are in x out, as here. ~H behind a name in
 * braces: llama.cpp has turned the rows of its H heads for a rope that pairs neighbours, and they are turned back.
 *
 * A name may lack its first part, up to the first dot: so the weights of a model without its head are called, as
 * GPT-2's are. Shapes must be the same. */
#ifndef PIANOLA_IMPORT_H
#define PIANOLA_IMPORT_H
#include "named.h"
#include "rt.h"

/* Whether the file has all that the stage reads, and its layers turn by the rope that the file is of. Marks tensors as
 * used. */
bool import_check(struct named_file *file, const struct rt_model *m, const struct rt_stage *s, char *why, size_t nwhy);
/* Once all stages are checked: whether there is nothing else. True with why not empty: a warning that names what is not
 * read. */
bool import_check_rest(struct named_file *file, char *why, size_t nwhy);
/* Whether the file says of its model what a layer of the stage does otherwise: a weight's shape does not tell. what
 * names both numbers and from, the file that says it. It may be meant, as where a base of rope is raised for a longer
 * context. */
bool import_differs(struct named_file *file, const char *from, const struct named_said *said, const struct rt_stage *s,
                    char *what, size_t nwhat);
/* A stage's first weights, as host_init leaves them: fp32, weight_count of them; from the file, or by the seed where it
 * is NULL. */
bool first_weights(struct named_file *file, uint64_t seed, const struct rt_model *m, const struct rt_stage *s, float *w,
                   char *why, size_t nwhy);
#endif
