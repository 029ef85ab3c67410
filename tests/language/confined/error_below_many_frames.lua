local function deep(n)
  if n == 0 then while true do pcall(error) end end
  return (deep(n - 1))
end
deep(150000)
