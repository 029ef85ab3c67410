-- args: ../../../schedules/gpipe.lua --cluster FILE
return cluster {
  latency = 1,
}
