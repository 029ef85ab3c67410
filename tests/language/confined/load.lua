load("while true do end")()
