return (""):rep(math.maxinteger)
