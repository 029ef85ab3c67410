while true do pcall(function() return nothing_is_named_so end) end
