params { x = ("x"):rep(90000000) }
