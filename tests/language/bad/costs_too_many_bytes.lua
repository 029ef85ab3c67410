-- args: ../../../schedules/serial.lua --model FILE
-- The limit applies to the sum: a stage's bytes are added up in 64 bits.
return model {
  costs = { { forward = 0.01, activation = 2^57 }, { forward = 0.01, activation = 2^57 } },
}
