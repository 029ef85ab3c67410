-- AlexNet on images of 224 x 224, with one tower (Krizhevsky 2014, "One weird trick for parallelizing convolutional
-- neural networks"; as torchvision builds it), as a cost model: its layers' FLOP over `flops`, and their bytes. A
-- layer's ReLU is in place. A backward takes twice as long as a forward; the first layer's takes as long as its
-- forward, since the images need no gradient.
--
--   -D batch=256         images per microbatch; PipeDream's minibatch per rank (Narayanan 2019)
--   -D flops=12.4e12     FLOP/s that a rank reaches: a V100, as PipeDream's authors profiled it, 85.3 ms for 256 images
--                        (github.com/msr-fiddle/pipedream, profiler/image_classification/profiles/alexnet)
--   -D cut=6             where stages begin, as positions in costs; default: evenly by time
local p = params { batch = 256, flops = 12.4e12, cut = {} }
local side, channels, costs = 224, 3, {}

local function add(name, flop, outputs, weights)
  local forward = p.batch * flop / p.flops
  costs[#costs + 1] = { name = name, forward = forward, backward = #costs == 0 and forward or 2 * forward,
    activation = 4 * p.batch * outputs, weights = 4 * weights }
end

local function conv(name, to, kernel, stride, padding)
  local products = kernel^2 * channels * to
  side = (side + 2 * padding - kernel) // stride + 1
  add(name, 2 * products * side^2, to * side^2, products + to)
  channels = to
end

local function pool(name)   -- 3 x 3 with a stride of 2
  side = (side - 3) // 2 + 1
  add(name, 9 * channels * side^2, channels * side^2, 0)
end

local function full(name, from, to) add(name, 2 * from * to, to, from * to + to) end

conv("conv1", 64, 11, 4, 2)
pool("pool1")
conv("conv2", 192, 5, 1, 2)
pool("pool2")
conv("conv3", 384, 3, 1, 1)
conv("conv4", 256, 3, 1, 1)
conv("conv5", 256, 3, 1, 1)
pool("pool5")
full("fc6", channels * side^2, 4096)
full("fc7", 4096, 4096)
full("fc8", 4096, 1000)

return model { costs = costs, cut = #p.cut > 0 and p.cut or nil }
