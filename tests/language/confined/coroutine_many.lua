local kept = {}
while true do
  kept[#kept + 1] = coroutine.create(function() coroutine.yield(("x"):rep(1000)) end)
  coroutine.resume(kept[#kept])
end
