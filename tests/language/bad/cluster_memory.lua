-- args: ../../../schedules/gpipe.lua --cluster FILE
return cluster {
  memory = 0,
}
