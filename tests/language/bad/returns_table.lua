return { workers = 4, stages = 4, batches = 4 }
