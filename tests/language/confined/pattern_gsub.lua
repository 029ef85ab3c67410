return (("a"):rep(30000):gsub(".-.-.-b", "%0"))
