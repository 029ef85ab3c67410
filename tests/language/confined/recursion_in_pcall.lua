local function f() pcall(f) return f() end
f()
