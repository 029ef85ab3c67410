local p = params { workers = 4 )
