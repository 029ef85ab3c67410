local function deeper() pcall(deeper) end
while true do deeper() end
