-- Naive pipelining without flushes: a backward may read other weights than its forward did.
-- Harlap 2018, "PipeDream: Fast and Efficient Pipeline Parallel DNN Training", section 3.3, explains why the result is
-- not the gradient of any loss. It is included for comparison.
--
-- pianola show schedules/pipedream_naive.lua
--| time    0         5         10        15        20        25        30        35        40
--| rank 0  F0F1F2F3. . . . . . B0- F4B1- F5B2- F6B3- F7B4- F8B5- F9B6- F B7- F B8- . B9- . B10 . B11
--|  period                                     |----------------------|
--| rank 1  . F0F1F2. . . . B0- F3B1- F4B2- F5B3- F6B4- F7B5- F8B6- F9B7- F B8- F B9- . B10 . B11 . .
--|  period                                       |----------------------|
--| rank 2  . . F0F1. . B0- F2B1- F3B2- F4B3- F5B4- F6B5- F7B6- F8B7- F9B8- F B9- F B10 . B11 . . . .
--|  period                                         |----------------------|
--| rank 3  . . . F0B0- F1B1- F2B2- F3B3- F4B4- F5B5- F6B6- F7B7- F8B8- F9B9- F B10 F B11 . . . . . .
--|  period                                     |----------------------|
local p = params { workers = 4, batches = 24 }
return schedule {
  workers = p.workers, stages = p.workers, batches = p.batches,
  w = function(s, b, d) return s, s end,
  n = function(s, b, d) return one_forward_one_backward(b, d, p.workers - s) end, order = "strict",
  update = "each", version = "latest",
}
