return ("("):rep(1000000):find("%b()%b()")
