---@meta pianola
-- What scripts can use, for editors with a Lua language server: completion, hover, types. It is never run. The same
-- names as `pianola help scripts` prints; a test compares the two.

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

---One or two jobs as text, such as `"1F3"`: stage, direction, microbatch; `"1F3.0"`: with slices. `"0F3+7B1"`: two that
---overlap.
---@alias pianola.entry string

---@class pianola.schedule
---@field workers integer ranks
---@field stages integer stages of the model
---@field batches integer microbatches of a step
---Into how many slices each microbatch is cut along the sequence; 1, or absent: none. Each slice has jobs of its own, and
---functions that are asked about a microbatch get the slice q, from 0, behind their other arguments.
---@field slices? integer
---Rows of a sequence in each slice, or "balanced": so that the largest takes as short as it can, by the model's FLOP.
---Default: as many in each.
---@field slice_cut? integer[]|"balanced"
---Home, where the stage's weights, optimizer state and final gradient live (nil: it has no weights), and the rank that
---computes the job, or the team of ranks that compute it together.
---@field w? fun(s: integer, b: integer, d: pianola.direction, q?: integer): integer|integer[]|nil, integer|integer[]
---Among the jobs that a rank could start now, the smallest runs; then smaller b, smaller s, and F < R < I < B < W.
---For an update nil, too: it runs at once.
---@field n? fun(s: integer, b: integer, d: pianola.direction|"U", q?: integer): number?
---`"greedy"`: a rank never idles while an admissible job is ready. `"strict"`: jobs run in exactly the order of n.
---@field order? "greedy"|"strict"
---Instead of w and n: a list of jobs per rank, in order. A stage's home is the rank that runs its jobs, or what w says.
---@field sequence? pianola.entry[][]
---With a sequence: the share of a pair's shorter job that hides behind the longer one, from 0 to 1.
---@field overlap? number
---The part of the makespan that ranks idle, by a closed form for the script's own costs and free links: at least 0, below
---1. `show` and `compare` print it beside the simulated bubble. nil: none is known, or not for these sizes.
---@field bubble? number
---With order "strict": true for a job without a place in the order, which runs when its rank would idle.
---@field fill? fun(s: integer, b: integer, d: pianola.direction, q?: integer): boolean?
---The most live activations that a rank may hold; its F jobs wait for room. math.huge: no limit, as without cap.
---@field cap? integer|fun(worker: integer): number
---Every B becomes I and W: input gradient and weight gradient are jobs of their own.
---@field split_backward? boolean|fun(s: integer, b: integer, q?: integer): boolean?
---F keeps only its input, and R runs before the backward.
---@field recompute? boolean|fun(s: integer, b: integer, q?: integer): boolean?
---The jobs `{s, b, d}`, with slices `{s, b, d, q}`, that a job needs, instead of the default dependencies. With recompute, an R always needs its F,
---and its B or I needs it, listed or not. pred is not asked about the R of `--recompute`.
---@field pred? fun(s: integer, b: integer, d: pianola.direction, q?: integer): [integer, integer, pianola.direction, integer?][]
---The time a job takes, 0 or from 1e-100 to 1e100, in the unit of the other times: seconds where a cluster gives them
---(flops, or cost), else FLOP with a model. Default: F, I, W and R 1, B 2; with a model, the model's cost.
---@field cost? fun(s: integer, b: integer, d: pianola.direction|"U", q?: integer): number?
---Where a stage has several homes: 1, they divide the optimizer's state among them; 2, the summed gradient too. Default 0.
---@field zero? integer|fun(s: integer): integer
---The rank from which the job's rank takes its copy of the weights: a relay, which has a job that reads them, or a home.
---nil, or where the relay does not have them when the job starts: the home.
---@field source? fun(s: integer, b: integer, d: pianola.direction, q?: integer): integer?
---How many fetched or gathered stages a rank may hold at once; default 2, one in use and one prefetched.
---@field weight_slots? integer|fun(worker: integer): number
---`"flush"`, the default: weights change once, at the end of the step. Else updates are jobs, which n and cost are asked
---about with "U" and their number: after each microbatch of a stage, or after as many. Each member of a team has its own.
---@field update? "flush"|"each"|integer|fun(s: integer): "flush"|"each"|integer
---With such an update, which version of the weights a job reads: what its forward reads (the default), the newest, what
---has the gradients that the input stage's weights have (vertical sync), or so many updates back. A team reads one version.
---@field version? "forward"|"latest"|"input"|integer|fun(s: integer, b: integer, d: pianola.direction): "forward"|"latest"|"input"|integer
---Of how many sets of weights that are not at home a rank sums gradients at a time. Default: of all. The sum whose next
---contribution comes last is sent early.
---@field grad_slots? number | fun(worker: integer): number
---The most bytes of a stage's gradient that travel as one message; it is cut into equal pieces, each of which travels once
---the layers with its parameters have run. math.huge: it travels whole. Default: by the cost of the links.
---@field bucket? number | fun(s: integer): number
---Whether what F keeps for the backward is in host memory meanwhile. "auto": what is worth most, by bytes and time, until
---the program fits into the cluster's memory.
---@field offload? boolean | "auto" | fun(s: integer, b: integer, q?: integer): boolean
---Whether the optimizer's state is in host memory, except while it is used.
---@field offload_optimizer? boolean | fun(s: integer): boolean
---What `pianola tune` tries of the parameters, besides workers, batches and tensor: a list of values for each, or
---"divisors": of workers.
---@field tune? table<string, "divisors"|(number|boolean|string)[]>
---So many ranks each rank becomes, a team that computes its jobs together. Default 1.
---@field tensor? integer

---The script's answer: `return schedule { workers = …, stages = …, batches = …, w = …, n = … }`.
---@param fields pianola.schedule
---@return pianola.schedule
function schedule(fields) end

---An n: all forwards, then all backwards (GPipe: Huang 2019, section 2.3).
---@param s integer
---@param b integer
---@param d pianola.direction
---@return number
function forward_first(s, b, d) end

---An n: a backward as soon as there is one (PipeDream's 1F1B: Narayanan 2019, section 3.2). Needs a cap to save memory.
---@param s integer
---@param b integer
---@param d pianola.direction
---@return number
function backward_first(s, b, d) end

---An n: what has waited longest, "depth first" (Rahimi 2025).
---@param s integer
---@param b integer
---@param d pianola.direction
---@return number
function oldest_batch_first(s, b, d) end

---An n: a whole stage before the next, "breadth first" (Lamy-Poirier 2022).
---@param s integer
---@param b integer
---@param d pianola.direction
---@return number
function oldest_stage_first(s, b, d) end

---For an n to use: where the k-th forward or backward of a rank comes that runs `warmup` forwards and then a backward
---and a forward in turn (Narayanan 2021, section 2.2).
---@param k integer from 0
---@param d pianola.direction
---@param warmup integer
---@return integer
function one_forward_one_backward(k, d, warmup) end

---Writes out a rank's list of a sequence: patterns, each with how often it repeats, such as
---`{ { 2, "F0" }, { 3, "F0+B1 W" } }`. The k-th F, R, W or backward of chunk x is that of `s, b = job(x, k)`.
---A W without a chunk is that of the rank's oldest I that has none yet.
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
---The layers in a chain, the last of them a loss; or all of them in stages.
---@field layers? pianola.layer[]
---@field optimizer? pianola.optimizer
---`"bf16"`: weights, activations and their gradients have 2 bytes, with fp32 masters. Default `"fp32"`.
---@field precision? "fp32"|"bf16"
---Where stages begin, as positions in layers: `{ 3, 5 }` opens stage 1 with layers[3]. Default: evenly by cost.
---@field cut? integer[]
---Instead of layers, what each of a chain of them takes, as `pianola profile` measures it. Such a model can be scheduled,
---compared and partitioned, but not run. It has no optimizer: updates take no time and no memory.
---@field costs? pianola.costs[]

---What a layer takes of one microbatch, in seconds and bytes.
---@class pianola.costs
---Default: `"layer 3"`.
---@field name? string
---@field forward number
---Default: twice as long as the forward.
---@field backward? number
---The part of `backward` that a weight gradient, W, takes. Default: half, or nothing where there are no weights.
---@field weight_gradient? number
---Bytes of its output.
---@field activation number
---Bytes that it keeps for its backward. Default: those of its output.
---@field stash? number
---Bytes of its weights, and of their gradient. Default: 0.
---@field weights? number

---The script's answer: `return model { input = …, layers = { … }, optimizer = … }`, or `return model { costs = { … } }`.
---@param fields pianola.model
---@return pianola.model
function model(fields) end

---@class pianola.tokens
---@field vocab integer
---@field context integer tokens of a sequence
---@field rows integer sequences of a microbatch

---Text: sequences of tokens. Goes with embedding first and cross_entropy last.
---@param fields pianola.tokens
---@return pianola.input
function tokens(fields) end

---@class pianola.integers
---@field features integer
---@field rows integer rows of a microbatch

---Generated rows of small integers, on which sums are exact. Goes with mse.
---@param fields pianola.integers
---@return pianola.input
function integers(fields) end

---@class pianola.embedding
---@field width integer
---Whether it adds a learned vector for a token's position. Default true.
---@field positions? boolean
---What a token's vector is multiplied by; 1. Gemma's is the square root of the width.
---@field scale? number
---`"rows"`: the members of a team divide the tokens, and add up what they find. Default: each has all of it.
---@field split? "rows"
---Its name in Hugging Face's safetensors files, without `.weight` and `.bias`: schedules/weights.md, "Names of tensors".
---@field hf? string
---The same in GGUF files.
---@field gguf? string

---Token and position embedding: the first layer of a model whose input is tokens.
---@param fields pianola.embedding
---@return pianola.layer
function embedding(fields) end

---@class pianola.linear
---@field width integer outputs
---Whether it has a bias. Default true; with integers as the input there is none.
---@field bias? boolean
---How the members of a team divide it: `"columns"`, each makes a part of the output; `"rows"`, each takes a part of the
---input, and the results are added up. Default: each computes all of it.
---@field split? "columns"|"rows"
---Its name in Hugging Face's safetensors files, without `.weight` and `.bias`: schedules/weights.md, "Names of tensors".
---@field hf? string
---The same in GGUF files.
---@field gguf? string

---y = x W + bias
---@param fields pianola.linear
---@return pianola.layer
function linear(fields) end

---@class pianola.relu
---`"rows"`: between the layers that a team divides otherwise, its members each have rows of their own, in this layer and
---all others there. Default, unless another layer says so: each has all rows.
---@field split? "rows"

---y = max(x, 0)
---@param fields pianola.relu
---@return pianola.layer
function relu(fields) end

---@class pianola.gelu
---`"rows"`: between the layers that a team divides otherwise, its members each have rows of their own, in this layer and
---all others there. Default, unless another layer says so: each has all rows.
---@field split? "rows"

---y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
---@param fields pianola.gelu
---@return pianola.layer
function gelu(fields) end

---@class pianola.silu
---`"rows"`: between the layers that a team divides otherwise, its members each have rows of their own, in this layer and
---all others there. Default, unless another layer says so: each has all rows.
---@field split? "rows"

---y = x / (1 + e^-x)
---@param fields pianola.silu
---@return pianola.layer
function silu(fields) end

---@class pianola.swiglu
---The gate is at most this, and up within this of 0. Default 0: they are any numbers.
---@field limit? number

---y = silu(gate) up, over an input of gate and up side by side: 2 widths in, one out.
---@param fields pianola.swiglu
---@return pianola.layer
function swiglu(fields) end

---@class pianola.geglu
---The gate is at most this, and up within this of 0. Default 0: they are any numbers.
---@field limit? number

---y = gelu(gate) up, likewise.
---@param fields pianola.geglu
---@return pianola.layer
function geglu(fields) end

---@class pianola.dropout
---The probability of a value to be dropped, from 0 to below 1.
---@field p number
---`"rows"`: between the layers that a team divides otherwise, its members each have rows of their own, in this layer and
---all others there. Default, unless another layer says so: each has all rows.
---@field split? "rows"

---In training, y = 0 with probability p, else x / (1 - p); else y = x.
---@param fields pianola.dropout
---@return pianola.layer
function dropout(fields) end

---@class pianola.layernorm
---Added to the variance; 1e-5.
---@field eps? number
---`"rows"`: between the layers that a team divides otherwise, its members each have rows of their own, in this layer and
---all others there. Default, unless another layer says so: each has all rows.
---@field split? "rows"
---Its name in Hugging Face's safetensors files, without `.weight` and `.bias`: schedules/weights.md, "Names of tensors".
---@field hf? string
---The same in GGUF files.
---@field gguf? string

---y = gamma (x - mean) / sqrt(var + eps) + beta
---@param fields pianola.layernorm
---@return pianola.layer
function layernorm(fields) end

---@class pianola.rmsnorm
---Added to the variance; 1e-5.
---@field eps? number
---`"rows"`: between the layers that a team divides otherwise, its members each have rows of their own, in this layer and
---all others there. Default, unless another layer says so: each has all rows.
---@field split? "rows"
---Its name in Hugging Face's safetensors files, without `.weight` and `.bias`: schedules/weights.md, "Names of tensors".
---@field hf? string
---The same in GGUF files.
---@field gguf? string

---y = gamma x / sqrt(mean(x^2) + eps)
---@param fields pianola.rmsnorm
---@return pianola.layer
function rmsnorm(fields) end

---@class pianola.headnorm
---Added to the variance; 1e-5.
---@field eps? number
---Its names in Hugging Face's safetensors files, without `.weight`: for queries, then after a semicolon for keys
---(schedules/weights.md, "Names of tensors").
---@field hf? string
---The same in GGUF files.
---@field gguf? string

---In front of attention, of whose heads it normalizes each of queries and keys: y = gamma x / sqrt(mean(x^2) + eps)
---@param fields pianola.headnorm
---@return pianola.layer
function headnorm(fields) end

---@class pianola.attention
---@field heads integer
---Heads of keys and values, each of which as many heads of queries read. Default: as many as heads.
---@field kv_heads? integer
---The base of a rotary position embedding, such as 10000; needs a linear layer before it. Default 0: none.
---@field rope? integer
---Scaled rope: its frequencies are divided by this. Default 0: they are not.
---@field rope_factor? number
---As Llama 3 scales them: those with fewer turns than rope_low in rope_context are divided, those with more than rope_high
---are not, and between the two it is linear.
---@field rope_low? number
---@field rope_high? number
---@field rope_context? integer
---How it goes on where the members of a team each have rows of their own. `"rows"`: all get the keys and values of all, and
---a member's rows are two chunks of each sequence, as far from its begin as from its end. `"heads"`: each gets all rows of
---some heads. Default: with some heads, behind a linear layer whose columns are divided.
---@field split? "rows"|"heads"

---Causal self-attention over an input of query, key and value side by side: heads, kv_heads and kv_heads columns for each
---of its output's heads.
---@param fields pianola.attention
---@return pianola.layer
function attention(fields) end

---@class pianola.moe
---@field experts integer
---How many experts a token is sent to. Default 2.
---@field top? integer
---The columns between an expert's two linear layers.
---@field width integer
---Swiglu, of 2 width columns, stands between them rather than gelu. Default: false.
---@field gated? boolean
---An expert has room for so many times the tokens of a sequence that it would have if they were spread evenly. The others
---are dropped. Default 1.25.
---@field capacity? number
---The factor of the loss that spreads tokens evenly. Default 0.01.
---@field balance? number
---A team divides the experts, and the sequences between them. Default: each member has all.
---@field split? "experts"

---A mixture of experts: a router sends each token to its top experts, without biases, and adds up what comes back.
---@param fields pianola.moe
---@return pianola.layer
function moe(fields) end

---@class pianola.unembedding
---`"columns"`: the members of a team divide the logits, each by its part of the table, as an embedding with split
---`"rows"` divides that. Default: each has all of it.
---@field split? "columns"

---The output layer that shares the embedding's table, as in GPT-2.
---@param fields pianola.unembedding
---@return pianola.layer
function unembedding(fields) end

---The loss of a model whose input is tokens.
---@param fields {}
---@return pianola.layer
function cross_entropy(fields) end

---The loss of a model whose input is integers.
---@param fields {}
---@return pianola.layer
function mse(fields) end

---Layers whose input is added to their output.
---@param layers pianola.layer[]
---@return pianola.layer
function residual(layers) end

---@class pianola.stage: pianola.layer[]
---The earlier stages, from 0, whose outputs it reads, added up; or `"input"`. Default: the stage before.
---@field from? integer|integer[]|"input"

---One stage of a model that is a graph: its layers, and what it reads.
---@param layers pianola.stage
---@return pianola.layer
function stage(layers) end

---@class pianola.sgd
---@field lr number of learning: reached after the warm-up
---@field schedule? "constant" | "linear" | "cosine" | "wsd" how it goes on. Default "constant"
---@field warmup? integer updates over which it rises, default 0
---@field steps? integer updates until the end, those of the warm-up included; default the run's
---@field final? number the end's part of lr, default 0; not of "constant"
---@field cooldown? number the last part of all updates, in which "wsd" goes down, default 0.2
---@field clip? number gradients are scaled to at most this norm, of all of them together. Default 0: they are not
---@field post_validation? boolean updates do not wait for the norm, and are made again where it clips them. Default false

---Plain gradient descent.
---@param fields pianola.sgd
---@return pianola.optimizer
function sgd(fields) end

---@class pianola.momentum
---@field lr number of learning: reached after the warm-up
---@field schedule? "constant" | "linear" | "cosine" | "wsd" how it goes on. Default "constant"
---@field warmup? integer updates over which it rises, default 0
---@field steps? integer updates until the end, those of the warm-up included; default the run's
---@field final? number the end's part of lr, default 0; not of "constant"
---@field cooldown? number the last part of all updates, in which "wsd" goes down, default 0.2
---@field clip? number gradients are scaled to at most this norm, of all of them together. Default 0: they are not
---@field post_validation? boolean updates do not wait for the norm, and are made again where it clips them. Default false
---@field momentum? number default 0.9
---@field nesterov? boolean default false

---Gradient descent with momentum.
---@param fields pianola.momentum
---@return pianola.optimizer
function momentum(fields) end

---@class pianola.adamw
---@field lr number of learning: reached after the warm-up
---@field schedule? "constant" | "linear" | "cosine" | "wsd" how it goes on. Default "constant"
---@field warmup? integer updates over which it rises, default 0
---@field steps? integer updates until the end, those of the warm-up included; default the run's
---@field final? number the end's part of lr, default 0; not of "constant"
---@field cooldown? number the last part of all updates, in which "wsd" goes down, default 0.2
---@field clip? number gradients are scaled to at most this norm, of all of them together. Default 0: they are not
---@field post_validation? boolean updates do not wait for the norm, and are made again where it clips them. Default false
---@field beta1? number default 0.9
---@field beta2? number default 0.95
---@field eps? number default 1e-8
---@field decay? number of matrices, token tables included; biases and norms do not decay. Default 0

---Adam with decoupled weight decay.
---@param fields pianola.adamw
---@return pianola.optimizer
function adamw(fields) end

---@class pianola.muon
---@field lr number of learning: reached after the warm-up
---@field schedule? "constant" | "linear" | "cosine" | "wsd" how it goes on. Default "constant"
---@field warmup? integer updates over which it rises, default 0
---@field steps? integer updates until the end, those of the warm-up included; default the run's
---@field final? number the end's part of lr, default 0; not of "constant"
---@field cooldown? number the last part of all updates, in which "wsd" goes down, default 0.2
---@field clip? number gradients are scaled to at most this norm, of all of them together. Default 0: they are not
---@field post_validation? boolean updates do not wait for the norm, and are made again where it clips them. Default false
---@field adam_lr number AdamW's, of all but hidden matrices
---@field momentum? number default 0.95
---@field beta1? number default 0.9
---@field beta2? number default 0.95
---@field eps? number default 1e-8
---@field decay? number of matrices, default 0

---Muon for hidden matrices, AdamW for the rest.
---@param fields pianola.muon
---@return pianola.optimizer
function muon(fields) end

-- ---- clusters ----

---@class pianola.cluster
---Latency in seconds, and bandwidth in bytes per second. Without it links are free. Where there is no model, latency is
---in units of cost, and every tensor 1 byte.
---@field link? fun(src: integer, dst: integer): number, number
---How fast a rank is: 1 is the speed that costs are for, and 0.5 takes twice as long.
---@field speed? fun(rank: integer): number
---Bytes of a rank's device.
---@field memory? number
---Latency and bandwidth of a rank's link to host memory, and of that back, both of which it uses at the same time. Without
---it copies are free.
---@field host_link? fun(rank: integer): number, number
---Bytes of host memory for a rank.
---@field host_memory? number
---Floating-point operations per second of a rank; without it times count in FLOP, and links must be free: FLOP and
---seconds do not add up.
---@field flops? number
---Seconds as measured, of a stage's job or, with "U", of its update; nil: by its FLOP. A schedule's own cost() goes first.
---`pianola diff --fit` writes it. Behind the last stage stands the token table that layers share.
---@field cost? fun(s: integer, op: pianola.direction | "U"): number?
---How many stages `cost` is of; it is refused for any other number.
---@field stages? integer

---The script's answer: `return cluster { link = …, memory = …, flops = … }`.
---@param fields pianola.cluster
---@return pianola.cluster
function cluster(fields) end
