local m = require "socket"
