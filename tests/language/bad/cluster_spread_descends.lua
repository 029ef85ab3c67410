-- args: ../../../schedules/ddp.lua --cluster FILE
return cluster {
  spread = function(s, op) return { 1, 2, 1.5 } end,
}
