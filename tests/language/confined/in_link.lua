-- args: --cluster FILE
return cluster { link = function() ::again:: pcall(function() while true do end end) goto again end }
