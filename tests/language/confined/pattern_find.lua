return ("a"):rep(60000):find(".-.-.-b")
