-- args: ../../../schedules/gpipe.lua --cluster FILE
return cluster {
  flops = 1e300,
}
