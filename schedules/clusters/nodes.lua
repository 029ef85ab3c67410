-- Nodes of equal devices. A link has the bandwidth of the narrowest level that it crosses: within a node, between nodes
-- of a rack, between racks. Each device has its own links: contention beyond them (an oversubscribed switch) is not
-- modelled.
--
--   -D kind=h100         a100, h100, h200, b200: SXM devices, 8 in a node; cpu: cores of a machine without GPUs
--   -D devices=8         devices of a node; -D rack=0: nodes of a rack, 0: all nodes are in one
--   -D spine=1           a rack link's share of the bandwidth between nodes
--   -D utilization=0.4   share of the peak FLOP/s that jobs reach. torchtitan's Llama 3.1 8B: 33 to 39 % on H100s
--
-- flops: dense bf16, from the datasheets ("A100 Tensor Core GPU", "H100 Tensor Core GPU", "H200 Tensor Core GPU", "HGX
-- B200"), where the figure with sparsity is twice as much; memory: from the same. inside: NVLink in one direction, half of
-- the datasheets' 600, 900, 900 and 1800 GB/s. between: the node's InfiniBand per device (DGX A100, H100, H200, B200 user
-- guides: 8 ports of 200, and then 400 Gb/s). Latencies: NCCL's tuning table (src/graph/tuning.cc, hwLat: ring, Simple),
-- 3.4 us over NVLink and 14 us over a network, 5.7 us over PCIe. host: PCIe in one direction, half of the datasheets' 64
-- GB/s (Gen4) and 128 GB/s (Gen5); hosts: the node's system memory per device (the same user guides: 2 TB).
--
-- cpu: one of 2 cores of an AMD EPYC in a virtual machine with 24 GiB, measured by a rank over Open MPI's shared memory on
-- 2026-11-22: `pianola diff --fit` of 1F1B on two ranks with a stage's stashes in host memory, gpt.lua -D width=256 -D
-- context=256 (messages of 1 MiB, copies of 32 MiB); latency: messages of 128 bytes. between: 10GBASE-R's rate (IEEE 802.3ae).
local kinds = {
  a100 = { flops = 312e12, memory = 80e9, inside = 300e9, between = 25e9, host = 32e9, hosts = 250e9 },
  h100 = { flops = 989e12, memory = 80e9, inside = 450e9, between = 50e9, host = 64e9, hosts = 250e9 },
  h200 = { flops = 989e12, memory = 141e9, inside = 450e9, between = 50e9, host = 64e9, hosts = 250e9 },
  cpu = { flops = 57e9, reached = 1, memory = 12e9, inside = 3.2e9, between = 1.25e9, host = 7.3e9, hosts = 12e9,
    latency = 2.2e-6, copy = 0 },
  b200 = { flops = 2250e12, memory = 180e9, inside = 900e9, between = 50e9, host = 64e9, hosts = 250e9 },
}
local p = params { kind = "h100", devices = 8, rack = 0, spine = 1.0, utilization = 0.4, memory = 0.0 }
local k = kinds[p.kind]
if not k then error("kind = " .. p.kind .. ": one of a100, h100, h200, b200, cpu") end
if p.devices < 1 then error("devices = " .. p.devices .. ": a node has at least one") end
local function node(rank) return rank // p.devices end
local function rack(rank) return p.rack > 0 and node(rank) // p.rack or 0 end

return cluster {
  link = function(src, dst)
    if node(src) == node(dst) then return k.latency or 3.4e-6, k.inside end
    if rack(src) == rack(dst) then return 14e-6, k.between end
    return 14e-6, k.between * p.spine
  end,
  flops = k.flops * (k.reached or p.utilization),
  memory = p.memory > 0 and p.memory or k.memory,
  host_link = function(rank) return k.copy or 5.7e-6, k.host end,
  host_memory = k.hosts,
}
