::again::
pcall(function() ::inner:: goto inner end)
goto again
