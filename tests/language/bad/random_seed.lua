math.randomseed()
