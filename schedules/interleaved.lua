-- Interleaved 1F1B: several chunks of stages per rank, depth first in groups of microbatches.
-- Narayanan 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", section 2.2.2: rank r
-- has the stages r, r + P, ...; a group of microbatches goes through all chunks before the next group. The bubble is 1F1B's
-- divided by the number of chunks, (P - 1) / (M V); rank 0 holds (V - 1) G + 2 (P - 1) + 1 activations, with G microbatches
-- in a group. In the paper P divides M and G = P; here groups have at least P, and differ by at most one. With fewer
-- groups it is the hybrid of depth first and breadth first (Lamy-Poirier 2023, "Breadth-First Pipeline Parallelism"): a
-- stage's next microbatches run while its first one is in flight, so with G above P latency costs no more than in
-- breadth first.
--
-- pianola show schedules/interleaved.lua
--| time    0         10        20        30        40        50
--| rank 0  FFFFFFFFFFF...B0FB1.FB2FB3FB0FB1B2.B3.B4.B5.B6.B7B4B5B6B7
--| rank 1  .FFFFFFFFF..B0FB1FB2FB3FB0FB1FB2FB3.B4.B5.B6.B7B4B5B6B7..
--| rank 2  ..FFFFFFF.B0FB1FB2FB3FB0FB1FB2FB3FB4FB5.B6.B7B4B5B6B7....
--| rank 3  ...FFFFFB0FB1FB2FB3FB0FB1FB2FB3FB4FB5FB6FB7B4B5B6B7......
local p = params { workers = 4, batches = 8, chunks = 2 }
local P, M, V = p.workers, p.batches, p.chunks
if V < 2 then error("chunks = " .. V .. ": with fewer than 2 chunks there is nothing to interleave; see schedules/1f1b.lua") end
local groups = params { groups = math.max(1, M // math.max(1, P)) }.groups
if groups < 1 then error("groups = " .. groups .. ": there is at least one") end
if groups > 1 and M // groups < P then
  error("groups = " .. groups .. " leaves " .. M // groups .. " microbatches in one, fewer than workers = " .. P
    .. ": ranks would wait for its first to come back for the next chunk")
end
local function first(g) return -(-g * M // groups) end -- of group g; rounded up

-- The index of (s,b) among its rank's forwards: by group, then by chunk, then by microbatch. Backwards go through the
-- chunks in reverse.
local function index(s, b, d)
  local g, chunk = b * groups // M, d == "F" and s // P or V - 1 - s // P
  return first(g) * V + chunk * (first(g + 1) - first(g)) + b - first(g)
end

return schedule {
  workers = P, stages = P * V, batches = M,
  w = function(s, b, d) return s % P, s % P end,
  n = function(s, b, d)
    return one_forward_one_backward(index(s, b, d), d, (V - 1) * first(1) + 2 * (P - 1 - s % P) + 1)
  end,
  order = "strict",
  bubble = M >= P and (P - 1) / (V * M + P - 1) or nil,
  tune = { chunks = { 2, 4, 8 } },
}
