-- args: ../../../schedules/gpipe.lua --cluster FILE
return cluster {
  link = function(src, dst) return src - dst, math.huge end,
}
