---@meta pianola
-- The names that scripts can use, for editors with a Lua language server: completion, hover, types. This file is never
-- run. `pianola help scripts` prints the same names; a test compares the two.

-- ---- every script ----

---Declares the script's parameters with their defaults; `-D name=value` on the command line overrides one. Numbers,
---booleans, strings and lists of numbers. May be called again, for defaults that depend on parameters.
---
---    local p = params { workers = 4, batches = 8 }
---@generic T: table
---@param defaults T
---@return T
function params(defaults) end

-- ---- schedules ----

---`F` forward; `B` full backward, or `I` input gradient and `W` weight gradient; `R` recompute.
---@alias pianola.direction "F"|"B"|"I"|"W"|"R"

---One or two jobs as text, such as `"1F3"`: stage, direction, microbatch; `"1F3.0"`: with slices. `"0F3+7B1"`: two jobs
---that overlap.
---@alias pianola.entry string

---@class pianola.schedule
---@field workers integer ranks
---@field stages integer stages of the model
---@field batches integer microbatches per step
---Number of slices into which each microbatch is cut along the sequence; 1 or absent: not cut. Each slice has jobs of
---its own, and functions of a microbatch get the slice q, from 0, after their other arguments.
---@field slices? integer
---Rows of a sequence in each slice, or "balanced": the largest slice has as little FLOP as possible. Default: equal.
---@field slice_cut? integer[]|"balanced"
---Home, where the stage's weights, optimizer state and final gradient live (nil: it has no weights), and the rank that
---computes the job, or the team of ranks that compute it together.
---@field w? fun(s: integer, b: integer, d: pianola.direction, q?: integer): integer|integer[]|nil, integer|integer[]
---The priority: among the jobs that a rank could start now, the smallest n runs; ties go to smaller b, then smaller s,
---then F < R < I < B < W. For an update, n may be nil: it runs at once.
---@field n? fun(s: integer, b: integer, d: pianola.direction|"U", q?: integer): number?
---`"greedy"`: a rank never idles while an admissible job is ready. `"strict"`: jobs run in exactly the order of n.
---@field order? "greedy"|"strict"
---Instead of w and n: a list of jobs per rank, in order. A stage's home is the rank that runs its jobs, unless w gives
---another.
---@field sequence? pianola.entry[][]
---With a sequence: the share of a pair's shorter job that the longer one hides, from 0 to 1.
---@field overlap? number
---The share of the makespan that ranks idle, by a closed form for the script's own costs and free links: at least 0,
---below 1. `show` and `compare` print it beside the simulated bubble. nil: unknown, or unknown for these sizes.
---@field bubble? number
---With order "strict": whether a job has no place in the order, and runs when its rank would idle.
---@field fill? fun(s: integer, b: integer, d: pianola.direction, q?: integer): boolean?
---Upper bound on a rank's live activations; its F jobs wait for room. math.huge: no limit, the default.
---@field cap? integer|fun(worker: integer): number
---Whether B becomes I and W: input gradient and weight gradient are jobs of their own.
---@field split_backward? boolean|fun(s: integer, b: integer, q?: integer): boolean?
---Whether F keeps only its input, and R recomputes the rest before the backward.
---@field recompute? boolean|fun(s: integer, b: integer, q?: integer): boolean?
---The jobs `{s, b, d}`, with slices `{s, b, d, q}`, that a job needs, instead of the default dependencies. With
---recompute, R always needs its F, and B or I needs its R, listed or not. pred is not called for the R of
---`--recompute`.
---@field pred? fun(s: integer, b: integer, d: pianola.direction, q?: integer): [integer, integer, pianola.direction, integer?][]
---The time of a job, 0 or from 1e-100 to 1e100, in the unit of the other times: seconds if a cluster gives them (flops,
---or cost), else FLOP with a model. Default: F, I, W and R 1, B 2; with a model, the model's cost.
---@field cost? fun(s: integer, b: integer, d: pianola.direction|"U", q?: integer): number?
---If a stage has several homes: 1: they shard the optimizer state; 2: also the summed gradient. Default 0.
---@field zero? integer|fun(s: integer): integer
---The rank from which the job's rank fetches the weights: a relay, which has a job that reads them, or a home. nil: the
---home, which also serves if the relay does not have them when the job starts.
---@field source? fun(s: integer, b: integer, d: pianola.direction, q?: integer): integer?
---Number of fetched or gathered stages that a rank may hold at once. Default 2: one in use and one prefetched.
---@field weight_slots? integer|fun(worker: integer): number
---`"flush"`, the default: weights change once, at the end of the step. Otherwise updates are jobs, after each
---microbatch of a stage or after that number; n and cost get "U" and the update's number. Each member of a team has its
---own.
---@field update? "flush"|"each"|integer|fun(s: integer): "flush"|"each"|integer
---If updates are jobs: the version of the weights that a job reads. "forward": its forward's, the default; "latest":
---the newest; "input": the one with the same gradients as the input stage's (vertical sync); a number: that many
---updates back. A team reads one version.
---@field version? "forward"|"latest"|"input"|integer|fun(s: integer, b: integer, d: pianola.direction): "forward"|"latest"|"input"|integer
---Number of sets of weights not at home whose gradients a rank sums at a time. Default: all. When there are more, the
---sum whose next contribution comes last is sent early.
---@field grad_slots? number | fun(worker: integer): number
---The most bytes of a stage's gradient in one message. The gradient is cut into equal pieces, and each travels once the
---layers with its parameters have run. math.huge: not cut. Default: by the cost of the links.
---@field bucket? number | fun(s: integer): number
---Whether what F keeps is in host memory until the backward. "auto": the stashes worth most, by bytes and time, are
---offloaded until the program fits into the cluster's memory.
---@field offload? boolean | "auto" | fun(s: integer, b: integer, q?: integer): boolean
---Whether the optimizer state is in host memory, except while it is used.
---@field offload_optimizer? boolean | fun(s: integer): boolean
---Values of parameters that `pianola tune` tries, besides workers, batches and tensor: a list for each, or "divisors",
---the divisors of workers.
---@field tune? table<string, "divisors"|(number|boolean|string)[]>
---Number of ranks in the team that replaces each rank, and computes its jobs together. Default 1.
---@field tensor? integer

---Declares a schedule: `return schedule { workers = …, stages = …, batches = …, w = …, n = … }`.
---@param fields pianola.schedule
---@return pianola.schedule
function schedule(fields) end

---Order for n: all forwards, then all backwards (GPipe: Huang 2019, section 2.3).
---@param s integer
---@param b integer
---@param d pianola.direction
---@return number
function forward_first(s, b, d) end

---Order for n: a backward as soon as one is ready (PipeDream's 1F1B: Narayanan 2019, section 3.2). Needs a cap to save
---memory.
---@param s integer
---@param b integer
---@param d pianola.direction
---@return number
function backward_first(s, b, d) end

---Order for n: the job that has waited longest, "depth first" (Rahimi 2025).
---@param s integer
---@param b integer
---@param d pianola.direction
---@return number
function oldest_batch_first(s, b, d) end

---Order for n: a whole stage before the next, "breadth first" (Lamy-Poirier 2022).
---@param s integer
---@param b integer
---@param d pianola.direction
---@return number
function oldest_stage_first(s, b, d) end

---For use in n: returns the position of a rank's k-th forward or backward, if the rank runs `warmup` forwards, then a
---backward and a forward in turn (Narayanan 2021, section 2.2).
---@param k integer from 0
---@param d pianola.direction
---@param warmup integer
---@return integer
function one_forward_one_backward(k, d, warmup) end

---Writes out a rank's list of a sequence from patterns, each with its number of repetitions, such as
---`{ { 2, "F0" }, { 3, "F0+B1 W" } }`. The k-th F, R, W or backward of chunk x belongs to `s, b = job(x, k)`.
---A W without a chunk belongs to the rank's oldest I that has none yet.
---@param patterns [integer, string][]
---@param job fun(x: integer, k: integer): integer, integer
---@return pianola.entry[]
function unroll(patterns, job) end

-- ---- models ----

---@class pianola.layer
---@class pianola.input
---@class pianola.optimizer

---Either `input`, `layers` and `optimizer`, or `costs`.
---@class pianola.model
---@field input? pianola.input
---The layers: a chain that ends with a loss, or stages.
---@field layers? pianola.layer[]
---@field optimizer? pianola.optimizer
---`"bf16"`: weights, activations and their gradients have 2 bytes, with fp32 masters. Default `"fp32"`.
---@field precision? "fp32"|"bf16"
---Where stages begin, as positions in layers: `{ 3, 5 }` starts stage 1 with layers[3]. Default: evenly by cost.
---@field cut? integer[]
---What units read besides the text, by name: a file FILE.NAME.npy beside each file has a row for each token.
---@field inputs? table<string, { type: "i32"|"f32", columns?: integer, below?: integer }>
---@field check? { values: string, weights: string } another program's loss and gradients, for `pianola check-unit`
---Instead of layers: the costs of a chain of layers, as `pianola profile` measures them. Such a model can be scheduled,
---compared and partitioned, but not run. It has no optimizer: updates take no time and no memory.
---@field costs? pianola.costs[]

---A layer's costs for one microbatch, in seconds and bytes.
---@class pianola.costs
---Default: `"layer 3"`.
---@field name? string
---@field forward number
---Default: twice as long as the forward.
---@field backward? number
---W's part of `backward`. Default: half, or 0 without weights.
---@field weight_gradient? number
---Bytes of its output.
---@field activation number
---Bytes of its stash for the backward. Default: as many as its output.
---@field stash? number
---Bytes of its weights, and of their gradient. Default: 0.
---@field weights? number

---Declares a model: `return model { input = …, layers = { … }, optimizer = … }`, or `return model { costs = { … } }`.
---@param fields pianola.model
---@return pianola.model
function model(fields) end

---@class pianola.tokens
---@field vocab integer
---@field context integer tokens per sequence
---@field rows integer sequences per microbatch
---@field labels? boolean whether FILE.labels.npy beside each file gives the targets; negative ones do not count

---Text: sequences of tokens. Goes with embedding first and cross_entropy last.
---@param fields pianola.tokens
---@return pianola.input
function tokens(fields) end

---@class pianola.integers
---@field features integer
---@field rows integer rows per microbatch

---Generated rows of small integers, on which sums are exact. Goes with mse.
---@param fields pianola.integers
---@return pianola.input
function integers(fields) end

---@class pianola.embedding
---@field width integer
---Whether it adds a learned vector for a token's position. Default true.
---@field positions? boolean
---Factor of a token's vector, default 1. Gemma's is the square root of the width.
---@field scale? number
---`"rows"`: the members of a team divide the tokens, and sum the results. Default: each has the whole table.
---@field split? "rows"
---Its name in Hugging Face's safetensors files, without `.weight` and `.bias`: schedules/weights.md, "Names of tensors".
---@field hf? string
---The same in GGUF files.
---@field gguf? string
---Whether its parameters are not trained. They are then in the file `data`, under its name. Default: false.
---@field frozen? boolean
---@field data? string

---Token and position embedding: the first layer of a model whose input is tokens.
---@param fields pianola.embedding
---@return pianola.layer
function embedding(fields) end

---@class pianola.linear
---@field width integer outputs
---Whether it has a bias. Default true; with integers as the input it has none.
---@field bias? boolean
---How the members of a team divide it. `"columns"`: each computes a part of the output; `"rows"`: each takes a part of
---the input, and the results are summed. Default: each computes the whole layer.
---@field split? "columns"|"rows"
---Its name in Hugging Face's safetensors files, without `.weight` and `.bias`: schedules/weights.md, "Names of tensors".
---@field hf? string
---The same in GGUF files.
---@field gguf? string
---@field frozen? boolean
---@field data? string

---y = x W + bias
---@param fields pianola.linear
---@return pianola.layer
function linear(fields) end

---@class pianola.relu
---`"rows"`: between layers that a team divides otherwise, each member has rows of its own, in this layer and all others
---there. Default, unless another layer there has it: each has all rows.
---@field split? "rows"

---y = max(x, 0)
---@param fields pianola.relu
---@return pianola.layer
function relu(fields) end

---@class pianola.gelu
---`"rows"`: between layers that a team divides otherwise, each member has rows of its own, in this layer and all others
---there. Default, unless another layer there has it: each has all rows.
---@field split? "rows"

---y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
---@param fields pianola.gelu
---@return pianola.layer
function gelu(fields) end

---@class pianola.silu
---`"rows"`: between layers that a team divides otherwise, each member has rows of its own, in this layer and all others
---there. Default, unless another layer there has it: each has all rows.
---@field split? "rows"

---y = x / (1 + e^-x)
---@param fields pianola.silu
---@return pianola.layer
function silu(fields) end

---@class pianola.swiglu
---Upper bound on the gate, and on the absolute value of up. Default 0: no bound.
---@field limit? number

---y = silu(gate) up, over an input of gate and up side by side: 2 widths in, one out.
---@param fields pianola.swiglu
---@return pianola.layer
function swiglu(fields) end

---@class pianola.geglu
---Upper bound on the gate, and on the absolute value of up. Default 0: no bound.
---@field limit? number

---y = gelu(gate) up, with the same layout as swiglu.
---@param fields pianola.geglu
---@return pianola.layer
function geglu(fields) end

---@class pianola.dropout
---Probability that a value is dropped, from 0 to below 1.
---@field p number
---`"rows"`: between layers that a team divides otherwise, each member has rows of its own, in this layer and all others
---there. Default, unless another layer there has it: each has all rows.
---@field split? "rows"

---During training, y = 0 with probability p, else x / (1 - p). Otherwise y = x.
---@param fields pianola.dropout
---@return pianola.layer
function dropout(fields) end

---@class pianola.layernorm
---Added to the variance. Default 1e-5.
---@field eps? number
---`"rows"`: between layers that a team divides otherwise, each member has rows of its own, in this layer and all others
---there. Default, unless another layer there has it: each has all rows.
---@field split? "rows"
---Its name in Hugging Face's safetensors files, without `.weight` and `.bias`: schedules/weights.md, "Names of tensors".
---@field hf? string
---The same in GGUF files.
---@field gguf? string
---@field frozen? boolean
---@field data? string

---y = gamma (x - mean) / sqrt(var + eps) + beta
---@param fields pianola.layernorm
---@return pianola.layer
function layernorm(fields) end

---@class pianola.rmsnorm
---Added to the variance. Default 1e-5.
---@field eps? number
---`"rows"`: between layers that a team divides otherwise, each member has rows of its own, in this layer and all others
---there. Default, unless another layer there has it: each has all rows.
---@field split? "rows"
---Its name in Hugging Face's safetensors files, without `.weight` and `.bias`: schedules/weights.md, "Names of tensors".
---@field hf? string
---The same in GGUF files.
---@field gguf? string
---@field frozen? boolean
---@field data? string

---y = gamma x / sqrt(mean(x^2) + eps)
---@param fields pianola.rmsnorm
---@return pianola.layer
function rmsnorm(fields) end

---@class pianola.headnorm
---Added to the variance. Default 1e-5.
---@field eps? number
---Its names in Hugging Face's safetensors files, without `.weight`: for queries, then after a semicolon for keys
---(schedules/weights.md, "Names of tensors").
---@field hf? string
---@field gguf? string
---@field frozen? boolean
---@field data? string

---Normalizes each head of queries and keys before attention: y = gamma x / sqrt(mean(x^2) + eps)
---@param fields pianola.headnorm
---@return pianola.layer
function headnorm(fields) end

---@class pianola.attention
---@field heads integer
---Number of heads of keys and values; equal groups of query heads share them. Default: heads.
---@field kv_heads? integer
---Base of a rotary position embedding, such as 10000; needs a linear layer before it. Default 0: none.
---@field rope? integer
---Scaled rope: divides its frequencies. Default 0: not scaled.
---@field rope_factor? number
---Llama 3's scaling: divides frequencies with fewer turns than rope_low in rope_context, keeps those with more than
---rope_high, and interpolates linearly between the two.
---@field rope_low? number
---@field rope_high? number
---@field rope_context? integer
---How it works if the members of a team have rows of their own. `"rows"`: each member gets all keys and values, and its
---rows are two chunks of each sequence, as far from its begin as from its end. `"heads"`: each gets all rows of some
---heads. Default: each has some heads, after a linear layer whose columns are divided.
---@field split? "rows"|"heads"

---Causal self-attention over an input of query, key and value side by side: heads, kv_heads and kv_heads columns for each
---of its output's heads.
---@param fields pianola.attention
---@return pianola.layer
function attention(fields) end

---@class pianola.unit
---Its code, beside the script: files that end in .c, for CPUs, or in .cu, for GPUs.
---@field source? string|string[]
---Libraries that it is linked with.
---@field libraries? string|(string|{ [1]: string, sha256?: string })[]
---The beginning of its functions' names. Default: the first source's name, without its ending.
---@field name? string
---Columns of its output. Default: its input's.
---@field width? integer
---Columns that its input must have. Default: any.
---@field in_width? integer
---Rows that its input must have. Default: any.
---@field in_rows? integer
---Rows of its output. Default: its input's.
---@field out_rows? integer
---Its parameters, in the order of memory: `{ { "weight", 64, 256 }, { "bias", 256 } }`; or by name, in the order of the
---names: `{ bias = { 256 }, weight = { 64, 256 } }`.
---@field parameters? table
---What the backward reads again: "x", its input (default), "y", its output, "xy" or "".
---@field keeps? "x"|"y"|"xy"|""
---Bytes that a forward leaves for the backward.
---@field stash? integer
---Bytes that an input gradient leaves for the weight gradient.
---@field extra? integer
---Bytes of workspace: `{ forward, input, weight }`, or one number for all.
---@field work? integer|integer[]
---FLOP of a microbatch: `{ forward, input, weight }`. Default: as its matrices take.
---@field flop? number[]
---Initial values by parameter: "normal", the default of matrices, "zeros", the default of vectors, or "ones".
---@field init? table<string, "normal"|"zeros"|"ones">
---A safetensors file with its initial values, under the parameters' names.
---@field data? string
---Whether its parameters are not trained, or which are not. They are then in `data`. Default: false.
---@field frozen? boolean|string[]
---What it reads besides its input.
---@field side? string[]
---Its name in files of other programs, which their parameters' names follow.
---@field hf? string
---@field gguf? string

---A layer with code of its own, in C or CUDA: see units.md.
---@param fields pianola.unit
---@return pianola.layer
function unit(fields) end

---@class pianola.moe
---@field experts integer
---Number of experts that a token is sent to. Default 2.
---@field top? integer
---Columns between an expert's two linear layers.
---@field width integer
---Whether swiglu, with 2 width columns, replaces gelu between them. Default: false.
---@field gated? boolean
---Room of an expert, as a multiple of its share of a sequence's tokens if spread evenly. Further tokens are dropped.
---Default 1.25.
---@field capacity? number
---Factor of the loss that spreads tokens evenly. Default 0.01.
---@field balance? number
---A team divides the experts, and the sequences between them. Default: each member has all.
---@field split? "experts"

---A mixture of experts without biases: a router sends each token to its top experts, and sums their results.
---@param fields pianola.moe
---@return pianola.layer
function moe(fields) end

---@class pianola.unembedding
---`"columns"`: the members of a team divide the logits by their parts of the table, which an embedding with split
---`"rows"` divides. Default: each has the whole table.
---@field split? "columns"

---The output layer that shares the embedding's table, as in GPT-2.
---@param fields pianola.unembedding
---@return pianola.layer
function unembedding(fields) end

---The loss of a model whose input is tokens.
---@param fields {}
---@return pianola.layer
function cross_entropy(fields) end

---The loss of a model whose last unit makes one number of each row, its loss.
---@param fields {}
---@return pianola.layer
function mean_loss(fields) end

---The loss of a model whose input is integers.
---@param fields {}
---@return pianola.layer
function mse(fields) end

---Layers whose input is added to their output.
---@param layers pianola.layer[]
---@return pianola.layer
function residual(layers) end

---@class pianola.stage: pianola.layer[]
---Earlier stages, from 0, the sum of whose outputs it reads; or `"input"`. Default: the stage before.
---@field from? integer|integer[]|"input"

---One stage of a model that is a graph: its layers and its inputs.
---@param layers pianola.stage
---@return pianola.layer
function stage(layers) end

---@class pianola.sgd
---@field lr number learning rate, reached after the warm-up
---@field schedule? "constant" | "linear" | "cosine" | "wsd" course of lr after the warm-up, default "constant"
---@field warmup? integer updates over which it rises, default 0
---@field steps? integer updates until the end, warm-up included; default the run's
---@field final? number share of lr at the end, default 0; not for "constant"
---@field cooldown? number share of updates at the end in which "wsd" decays, default 0.2
---@field clip? number upper bound on the norm of all gradients together; larger ones are scaled. Default 0: none
---@field post_validation? boolean whether updates do not wait for the norm; redone if it clips them. Default false

---Plain gradient descent.
---@param fields pianola.sgd
---@return pianola.optimizer
function sgd(fields) end

---@class pianola.momentum
---@field lr number learning rate, reached after the warm-up
---@field schedule? "constant" | "linear" | "cosine" | "wsd" course of lr after the warm-up, default "constant"
---@field warmup? integer updates over which it rises, default 0
---@field steps? integer updates until the end, warm-up included; default the run's
---@field final? number share of lr at the end, default 0; not for "constant"
---@field cooldown? number share of updates at the end in which "wsd" decays, default 0.2
---@field clip? number upper bound on the norm of all gradients together; larger ones are scaled. Default 0: none
---@field post_validation? boolean whether updates do not wait for the norm; redone if it clips them. Default false
---@field momentum? number default 0.9
---@field nesterov? boolean default false

---Gradient descent with momentum.
---@param fields pianola.momentum
---@return pianola.optimizer
function momentum(fields) end

---@class pianola.adamw
---@field lr number learning rate, reached after the warm-up
---@field schedule? "constant" | "linear" | "cosine" | "wsd" course of lr after the warm-up, default "constant"
---@field warmup? integer updates over which it rises, default 0
---@field steps? integer updates until the end, warm-up included; default the run's
---@field final? number share of lr at the end, default 0; not for "constant"
---@field cooldown? number share of updates at the end in which "wsd" decays, default 0.2
---@field clip? number upper bound on the norm of all gradients together; larger ones are scaled. Default 0: none
---@field post_validation? boolean whether updates do not wait for the norm; redone if it clips them. Default false
---@field beta1? number default 0.9
---@field beta2? number default 0.95
---@field eps? number default 1e-8
---@field decay? number decay of matrices and token tables; biases and norms do not decay. Default 0

---Adam with decoupled weight decay.
---@param fields pianola.adamw
---@return pianola.optimizer
function adamw(fields) end

---@class pianola.muon
---@field lr number learning rate, reached after the warm-up
---@field schedule? "constant" | "linear" | "cosine" | "wsd" course of lr after the warm-up, default "constant"
---@field warmup? integer updates over which it rises, default 0
---@field steps? integer updates until the end, warm-up included; default the run's
---@field final? number share of lr at the end, default 0; not for "constant"
---@field cooldown? number share of updates at the end in which "wsd" decays, default 0.2
---@field clip? number upper bound on the norm of all gradients together; larger ones are scaled. Default 0: none
---@field post_validation? boolean whether updates do not wait for the norm; redone if it clips them. Default false
---@field adam_lr number AdamW's learning rate, for everything but hidden matrices
---@field momentum? number default 0.95
---@field beta1? number default 0.9
---@field beta2? number default 0.95
---@field eps? number default 1e-8
---@field decay? number decay of matrices, default 0

---Muon for hidden matrices, AdamW for the rest.
---@param fields pianola.muon
---@return pianola.optimizer
function muon(fields) end

-- ---- clusters ----

---@class pianola.cluster
---Latency in seconds, and bandwidth in bytes per second. Default: links are free. Without a model, latency is in units
---of cost, and every tensor is 1 byte.
---@field link? fun(src: integer, dst: integer): number, number
---Latency, and bandwidth as the "busbw" of nccl-tests, of a collective of n ranks, such as "ALL_REDUCE"; nil: by links.
---@field collective? fun(op: string, n: integer): number?, number?
---Speed of a rank: 1 is the speed that costs assume; 0.5 takes twice as long.
---@field speed? fun(rank: integer): number
---Bytes of a rank's device.
---@field memory? number
---Latency and bandwidth of a rank's link to host memory, and of its link back. Default: copies are free.
---@field host_link? fun(rank: integer): number, number
---Bytes of host memory for a rank.
---@field host_memory? number
---Floating-point operations per second of a rank. Without it times are in FLOP, and links must be free.
---@field flops? number
---Measured seconds of a stage's job or, with "U", of its update; nil: by its FLOP. A schedule's own cost() takes
---precedence. `pianola diff --fit` writes it. The token table that layers share comes after the last stage.
---@field cost? fun(s: integer, op: pianola.direction | "U"): number?
---Equally spaced quantiles of the job's or update's times, the extremes included, for `--jitter measured`; nil: none.
---@field spread? fun(s: integer, op: pianola.direction | "U"): number[]?
---Number of stages that `cost` covers; a schedule with another number is refused.
---@field stages? integer
---Number of cores that all ranks share. More jobs slow down equally. Default: each rank has enough cores of its own.
---@field cores? number
---Number of threads of a job, each of which can use a core. Default: 1.
---@field threads? integer
---Whether a rank is one thread, as in `pianola run`: jobs and messages one by one, and cores in turn. Default: false.
---@field serial? boolean
---Seconds until a rank that gets a core runs; needs serial. Default: 0.
---@field handoff? number

---Declares a cluster: `return cluster { link = …, memory = …, flops = … }`.
---@param fields pianola.cluster
---@return pianola.cluster
function cluster(fields) end
