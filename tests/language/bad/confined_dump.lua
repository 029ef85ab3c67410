local code = string.dump(function() end)
