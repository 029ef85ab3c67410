print(string.format("%p", {}))
