-- GNMT with 16 LSTM layers, half of them in the encoder (Wu 2016, "Google's Neural Machine Translation System", section
-- 3; the shape that MLPerf trained, of 1024 units and 32,320 tokens), as a cost model: FLOP over `flops`, and
-- bytes. -D layers=8 is GNMT-8. The layers form a chain, but all layers of the decoder read the attention's context, so
-- every cut after the attention also carries this context. The cut before the attention carries the encoder's output.
--
--   -D batch=64 -D length=25   sentences per microbatch, PipeDream's minibatch per rank (Narayanan 2019); their tokens
--   -D flops=7.8e12            FLOP/s that a rank reaches: a V100, as PipeDream's authors profiled GNMT-16, 520.5 ms for
--                              128 sentences of 25 (github.com/msr-fiddle/pipedream, profiler/translation/profiles/gnmt_large);
--                              of GNMT-8, 89.4 ms for 32 of 48, 13.2e12
--   -D cut=4,8,12              where stages begin, as positions in costs; default: evenly by time
local p = params { layers = 16, batch = 64, length = 25, flops = 7.8e12, cut = {} }
if p.layers < 4 or p.layers % 2 ~= 0 then error("layers = " .. p.layers .. ": expected an even number of at least 4") end
local units, vocabulary, tokens, costs = 1024, 32320, p.batch * p.length, {}

-- flop, outputs and crossing are per token; crossing: other values that later layers read.
local function add(name, flop, outputs, crossing, weights)
  local forward = tokens * flop / p.flops
  costs[#costs + 1] = { name = name, forward = forward, backward = 2 * forward, weights = 4 * weights,
    activation = 4 * tokens * (outputs + crossing), stash = 4 * tokens * outputs }
end

-- Four gates, each with products of the input and of the state, and two biases.
local function lstm_weights(inputs) return 4 * units * (inputs + units) + 8 * units end
local function lstm(name, inputs, crossing, ways)
  add(name, ways * 2 * 4 * units * (inputs + units), ways * units, crossing, ways * lstm_weights(inputs))
end

add("encoder embedding", units, units, 0, vocabulary * units)
lstm("encoder 1", units, 0, 2)   -- bidirectional
lstm("encoder 2", 2 * units, 0, 1)
for i = 3, p.layers // 2 do lstm("encoder " .. i, units, 0, 1) end
add("decoder embedding", units, units, units, vocabulary * units)
-- Bahdanau's attention: products of the query and of each key, once; then a score and a sum per pair of tokens.
add("decoder 1, attention", 2 * 4 * units * 2 * units + 2 * 2 * units^2 + p.length * 6 * units, 2 * units, 0,
  lstm_weights(units) + 2 * units^2 + units)
for i = 2, p.layers // 2 do lstm("decoder " .. i, 2 * units, units, 1) end
add("classifier", 2 * units * vocabulary, vocabulary, 0, vocabulary * units + vocabulary)

return model { costs = costs, cut = #p.cut > 0 and p.cut or nil }
