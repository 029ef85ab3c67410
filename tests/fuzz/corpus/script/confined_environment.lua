setmetatable(_ENV, {})
