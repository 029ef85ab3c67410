setmetatable({}, { __mode = "k" })
