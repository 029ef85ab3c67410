-- args: FILE --memory 6
-- Rank 0 needs 7 bytes, and rank 1, which also receives, 8.
return schedule {
  workers = 4, stages = 4, batches = 8,
  w = function(s, b, d) return s, s end,
  n = backward_first,
  cap = function(r) return 4 - r end,
}
