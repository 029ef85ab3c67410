return string.format(("%99.99f"):rep(1000000), table.unpack({}, 1, 900000))
