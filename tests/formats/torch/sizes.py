"""Sizes of the small models of transformers that the tests train: BASE, and GROUPED with two heads of keys."""

NO_ENDS = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)
BASE = dict(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=4,
    num_attention_heads=4,
    vocab_size=256,
    max_position_embeddings=64,
    **NO_ENDS,
)
GROUPED = dict(BASE, num_key_value_heads=2)
