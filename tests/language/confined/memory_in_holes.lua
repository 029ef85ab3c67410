-- Blocks of 1 KB, two of three freed again, leave holes that no block of 4 KB fits.
local small, large = {}, {}
for i = 1, 120000 do small[i] = ("x"):rep(1000) .. i end
for i = 1, 120000 do if i % 3 > 0 then small[i] = false end end
for i = 1, math.huge do large[i] = ("y"):rep(4000) .. i end
