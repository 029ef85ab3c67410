local function nest() while true do coroutine.resume(coroutine.create(nest)) end end
nest()
