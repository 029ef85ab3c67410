local function f(...) return f(0, 0, 0, 0, ...) end
f()
