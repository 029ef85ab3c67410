return string.format("%099999999d", 1)
