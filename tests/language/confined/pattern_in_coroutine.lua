return coroutine.wrap(function() return ("a"):rep(60000):find(".-.-.-b") end)()
