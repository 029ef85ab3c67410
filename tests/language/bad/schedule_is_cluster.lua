return cluster { flops = 1e12 }
