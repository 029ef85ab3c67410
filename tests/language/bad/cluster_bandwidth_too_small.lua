-- args: ../../../schedules/gpipe.lua --cluster FILE
return cluster {
  link = function(src, dst) return 0, 1e-300 end,
}
