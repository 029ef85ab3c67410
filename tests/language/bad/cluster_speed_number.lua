-- args: ../../../schedules/gpipe.lua --cluster FILE
return cluster { speed = 0.5 }
