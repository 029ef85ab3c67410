-- HelixPipe: attention, which has no weights, leaves the pipeline: its microbatches run on all ranks at once.
-- "HelixPipe: Efficient Distributed Training of Long Sequence Transformers with Attention Parallel Pipeline Parallelism", 2025
-- (arXiv 2507.00394), and its code, github.com/code-tunnel/Megatron-LM, megatron/core/pipeline_parallel/attn_pipe_schedule.py.
-- Rank r has the weights between the attentions of layers r - 1 and r, r + P - 1 and r + P, ... It computes the layers
-- with these weights for a group of microbatches, whose attentions the ranks after it share. The next rank runs the
-- first of these attentions, and has the next weights. With two folds, microbatches come in pairs: one is computed
-- while the other's tensors travel. The backwards are the forwards in reverse, so that the last microbatch in is the
-- first out.
-- A layer is four stages: queries, keys and values; attention; its output projection; MLP. Stage 0 is the embedding.
-- models/gpt_stages.lua is such a model.
--
-- pianola show schedules/helixpipe.lua
--| time    0         10        20        30        40        50        60        70        80        90        100
--| rank 0  FFFFFFFFFFFFFFF..FFFFFFF..FFFF.FFFFB5B5B4B4B3B3B2B2B1B1B0B0B1B0B3....B2B5B4B5B5B4B4....B3B3B2B2..B1B1B0B0
--| rank 1  ..F.FFFFFFFFFFFFFFFFFFFFFFF....................B3..B2B5..B4B5B5B5B4B4B4B3B3B3B2B2B2B1B1B1B0B0B0B1B0......
--| rank 2  ......F.FF.FFFFFFFFFFFFFFFFFFFFF.......B5..B4B5B5B5B4B4B4B3B3B3B2B2B2B1B1B1B0B0B0B1B0B3B2................
local P = params { workers = 3 }.workers
local p = params { layers = P, batches = 2 * P, folds = 2 }
local L, M, folds = p.layers, p.batches, p.folds
if folds < 1 then error("folds = " .. folds .. ": there is at least one") end
local stages = params { stages = 4 * L + 1 }.stages
if stages ~= 4 * L + 1 then error("an embedding, and four stages per layer: stages = " .. stages .. " must be " .. 4 * L + 1) end

local function is_attention(s) return s % 4 == 2 end
local function layer(s) return (s + 1) // 4 end   -- of an attention, or the one after the weights; L: after the last
local function rank(s, b)
  if is_attention(s) then return (layer(s) + b // folds + 1) % P end
  return layer(s) % P
end

-- A forward's place in its rank's order. Group by group, microbatches go through the layers; a rank with the weights
-- after the last attention and before the first alternates between the end of one group and the start of the next.
local group, steps = folds * P, 8
local function place(s, b)
  local step = 2 * (b // group * L + layer(s)) + (is_attention(s) and 1 or 0)
  return (step * group + b % group) * steps + (s + 1) % 4 + (s < 2 and 4 or 0)
end
local last = place(stages - 1, M - 1)

return schedule {
  workers = P, stages = stages, batches = M,
  w = function(s, b, d) return layer(s) % P, rank(s, b) end,
  n = function(s, b, d) return d == "F" and place(s, b) or 2 * last + 1 - place(s, b) end,
  order = "strict",
}
