table.sort({ 1, 2, 3 }, function(a, b) while true do end end)
