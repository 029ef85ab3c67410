local function f() return (("x"):gsub("x", f)) end
f()
