-- args: ../../../schedules/1f1b.lua -D tensor=2 --cluster FILE
return cluster { link = function(src, dst) return 0, dst < 4 and 8 or nil end }
