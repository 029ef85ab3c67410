-- args: ../../../schedules/gpipe.lua --cluster FILE
return cluster { speed = function(rank) return rank == 2 and 1e-300 or 1 end }
