local layers = { embedding { width = 64 }, cross_entropy {} }
return model { layers = layers }
