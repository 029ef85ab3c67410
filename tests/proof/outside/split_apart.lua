-- Weight gradients run on the other rank, so wstashes are sent. F of the second microbatch waits for an I of the first,
-- by a token.
return schedule {
  workers = 2, stages = 2, batches = 2,
  w = function(s, b, d) return s, d == "W" and 1 - s or s end,
  split_backward = true,
  pred = function(s, b, d)
    if d == "F" then return s == 1 and { { 0, b, "F" } } or b == 1 and { { 1, 0, "I" } } or {} end
    if d == "I" then return s == 1 and { { 1, b, "F" } } or { { 0, b, "F" }, { 1, b, "I" } } end
    return { { s, b, "I" } }
  end,
}
