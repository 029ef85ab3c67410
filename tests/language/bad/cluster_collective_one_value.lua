-- args: ../../../schedules/ddp.lua --cluster FILE
return cluster {
  collective = function(op, n) return n end,
}
