"""The durable store: a checkpoint is a directory, published whole or not at all."""
