-- Patterns of all kinds on texts that make them backtrack: a call must be charged at least the work that it did.
local items = { "a", ".", "a-", ".-", "a*", ".+", "a?", "(", ")", "()", "[^b]-", "[a-c%]]*", "%a+", "%b()", "%f[a]",
  "%f[%W]", "%1", "b", "$" }
local texts = { [5] = { ("a"):rep(16), ("(a)"):rep(5) }, [2] = { ("a"):rep(100), ("ab"):rep(50) }, [1] = { ("a"):rep(2000) } }
local state = 1
local function roll(n)
  state = (state * 1103515245 + 12345) % 2147483648
  return state // 65536 % n + 1
end
while true do
  for most, texts in pairs(texts) do
    local parts = {}
    for i = 1, most do parts[i] = items[roll(#items)] end
    local pattern, text = table.concat(parts) .. "c", texts[roll(#texts)]
    pcall(string.find, text, pattern)
    pcall(string.gsub, text, pattern, "%0%0")
    pcall(function() for _ in text:gmatch(pattern) do end end)
  end
end
