-- SlimPipe: 1F1B's order of slices, with several chunks of stages per rank.
-- Li 2025, "SlimPipe: Memory-Thrifty and Efficient Pipeline Parallelism for Long-Context LLM Training". Rank r has the
-- stages r, r + P, ...; all slices of a microbatch go through a chunk before the next. With at least as many slices as
-- ranks, all ranks stay busy, and M microbatches of Q slices take 3 (M Q V + P - 1), in units of one slice's forward
-- through one chunk. Rank r holds P - 1 - r + Q V activations of this size, little more than its share of one
-- microbatch. The paper also moves attention between ranks, to even out slices; here slices are cut by cost instead.
--
-- pianola show schedules/slimpipe.lua
--| time    0         5         10        15        20        25        30        35        40        45        50
--| rank 0  F F F F F . . B0.1F B0.0F B0.1F B0.0F B1.1F B1.0F B1.1F B1.0F B2.1F B2.0F B2.1F B2.0. B3.1B3.0B3.1B3.0
--| rank 1  . F F F F B0.1F B0.0F B0.1F B0.0F B1.1F B1.0F B1.1F B1.0F B2.1F B2.0F B2.1F B2.0F B3.1B3.0B3.1B3.0. .
local p = params { workers = 2, batches = 4, slices = 2, chunks = 2 }
local P, Q, V = p.workers, p.slices, p.chunks
if V > 1 and P > 2 * Q + 1 then
  error("slices = " .. Q .. ": with several chunks, " .. P .. " ranks need at least " .. P // 2 .. ", or they wait for each other forever; "
    .. P .. " keep all of them busy")
end

-- The index of (s,b,q) among its rank's forwards: by microbatch, then chunk, then slice. Backwards go in reverse.
local function index(s, b, d, q)
  local k = s // P * Q + (q or 0) -- nil without slices
  return b * Q * V + (d == "F" and k or Q * V - 1 - k)
end

return schedule {
  workers = P, stages = P * V, batches = p.batches, slices = Q,
  w = function(s, b, d, q) return s % P, s % P end,
  n = function(s, b, d, q) return one_forward_one_backward(index(s, b, d, q), d, Q * V + P - 1 - s % P) end,
  order = "strict",
  tune = { slices = { 2, 4 }, chunks = { 1, 2, 4 } },
}
