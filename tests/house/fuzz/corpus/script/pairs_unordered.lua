for k, v in pairs { [{}] = 1 } do print(k, v) end
