while true do
  local spin = coroutine.create(function() while true do end end)
  coroutine.resume(spin)
end
