-- Three stages, each on a team of its own size: 1, 2 or 4 ranks.
local p, teams = params { sizes = { 2, 2, 2 } }, { { 0 }, { 0, 1 }, [4] = { 0, 1, 2, 3 } }
return schedule { workers = 4, stages = #p.sizes, batches = 2,
  w = function(s, b, d) local team = teams[p.sizes[s + 1]] return team, team end }
