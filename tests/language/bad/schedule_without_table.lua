return schedule(4, 4, 4)
