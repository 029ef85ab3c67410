-- args: ../../../schedules/1f1b_offload.lua --cluster FILE
return cluster {
  host_memory = 1,
}
