-- VGG-16 on images of 224 x 224 (Simonyan 2015, "Very Deep Convolutional Networks for Large-Scale Image Recognition",
-- table 1, D), as a cost model: its layers' FLOP over `flops`, and their bytes. A layer's ReLU is in place.
-- A backward takes twice as long as a forward; the first layer's takes as long as its forward, since the images need no
-- gradient.
--
--   -D batch=64          images per microbatch; PipeDream's minibatches: 64 per rank (Narayanan 2019), 32 (Harlap 2018)
--   -D flops=17.6e12     FLOP/s that a rank reaches: a V100, as PipeDream's authors profiled it, 672.5 ms for 128 images
--                        (github.com/msr-fiddle/pipedream, profiler/image_classification/profiles/vgg16). 11.5e12: a
--                        Titan X (Pascal), 128.62 ms for 16 (github.com/jcjohnson/cnn-benchmarks, cuDNN 5.1)
--   -D cut=16            where stages begin, as positions in costs; default: evenly by time
--
--   pianola partition --model schedules/models/vgg16.lua --workers 8 --bandwidth 1.25e9 --sum
local p = params { batch = 64, flops = 17.6e12, cut = {} }
local side, channels, costs = 224, 3, {}

local function add(name, flop, outputs, weights)
  local forward = p.batch * flop / p.flops
  costs[#costs + 1] = { name = name, forward = forward, backward = #costs == 0 and forward or 2 * forward,
    activation = 4 * p.batch * outputs, weights = 4 * weights }
end

local function conv(name, to)   -- 3 x 3
  local products = 9 * channels * to
  add(name, 2 * products * side^2, to * side^2, products + to)
  channels = to
end

local function pool(name)   -- 2 x 2
  side = side // 2
  add(name, 4 * channels * side^2, channels * side^2, 0)
end

local function full(name, from, to) add(name, 2 * from * to, to, from * to + to) end

for block, width in ipairs { 64, 128, 256, 512, 512 } do
  for i = 1, block <= 2 and 2 or 3 do conv("conv" .. block .. "_" .. i, width) end
  pool("pool" .. block)
end
full("fc6", channels * side^2, 4096)
full("fc7", 4096, 4096)
full("fc8", 4096, 1000)

return model { costs = costs, cut = #p.cut > 0 and p.cut or nil }
