error(("x"):rep(80000000))
