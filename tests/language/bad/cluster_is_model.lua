-- args: ../../../schedules/serial.lua --cluster FILE
local layers = { linear { width = 4 }, mse {} }
return model { layers = layers }
