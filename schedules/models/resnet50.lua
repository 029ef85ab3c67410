-- ResNet-50 on images of 224 x 224 (He 2016, "Deep Residual Learning for Image Recognition", table 1; a block's stride is in
-- its 3 x 3 convolution, as in torchvision), as a cost model: FLOP over `flops`, and bytes. A block is one layer: a cut
-- within it would send two tensors. It keeps the outputs of its convolutions and of their normalizations. A backward takes
-- twice as long as a forward; the first layer's takes as long as its forward, since the images need no gradient.
--
--   -D batch=128         images per microbatch; PipeDream's minibatch per rank (Narayanan 2019)
--   -D flops=7.02e12     FLOP/s that a rank reaches: a V100, as PipeDream's authors profiled it, 443.4 ms for 128 images
--                        (github.com/msr-fiddle/pipedream, profiler/image_classification/profiles/resnet50)
--   -D cut=4,8,14        where stages begin, as positions in costs; default: evenly by time
local p = params { batch = 128, flops = 7.02e12, cut = {} }
local costs = {}

local function add(name, flop, outputs, kept, weights)
  local forward = p.batch * flop / p.flops
  costs[#costs + 1] = { name = name, forward = forward, backward = #costs == 0 and forward or 2 * forward,
    activation = 4 * p.batch * outputs, stash = 4 * p.batch * kept, weights = 4 * weights }
end

-- FLOP, outputs and weights of a convolution and its batch normalization, a scale and a shift per channel.
local function conv(from, to, kernel, side)
  local products = kernel^2 * from * to
  return 2 * products * side^2, to * side^2, products + 2 * to
end

-- 1 x 1 to `width`, 3 x 3, 1 x 1 to 4 x width; where the shape changes, the shortcut is a 1 x 1 convolution.
local function block(name, from, width, before, side)
  local parts = { { from, width, 1, before }, { width, width, 3, side }, { width, 4 * width, 1, side } }
  if from ~= 4 * width then parts[4] = { from, 4 * width, 1, side } end
  local flop, kept, weights = 0, 0, 0
  for _, part in ipairs(parts) do
    local f, outputs, w = conv(table.unpack(part))
    flop, kept, weights = flop + f, kept + 2 * outputs, weights + w
  end
  add(name, flop, 4 * width * side^2, kept, weights)
end

local flop, outputs, weights = conv(3, 64, 7, 112)
add("conv1", flop, outputs, 2 * outputs, weights)
add("pool1", 9 * 64 * 56^2, 64 * 56^2, 64 * 56^2, 0)
local from, before = 64, 56
for group, blocks in ipairs { 3, 4, 6, 3 } do
  local width, side = 64 << (group - 1), 56 >> (group - 1)
  for i = 1, blocks do
    block("conv" .. group + 1 .. "_" .. i, from, width, before, side)
    from, before = 4 * width, side
  end
end
add("pool5", 2048 * 7^2, 2048, 2048, 0)
add("fc", 2 * 2048 * 1000, 1000, 1000, 2048 * 1000 + 1000)

return model { costs = costs, cut = #p.cut > 0 and p.cut or nil }
