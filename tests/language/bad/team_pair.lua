-- args: FILE -D tensor=2 --model ../../../schedules/models/integers.lua
return schedule {
  workers = 1, stages = 1, batches = 2,
  sequence = { { "0F0", "0F1", "0B0+0B1" } },
}
