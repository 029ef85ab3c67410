-- args: ../../../schedules/gpipe.lua --cluster FILE
return cluster {
  link = function(src, dst) return 0, 0 end,
}
