-- args: ../../../schedules/gpipe.lua --cluster FILE
return cluster {
  link = 1,
}
