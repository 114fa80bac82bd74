"""The trainer's state: what it must offer, and torch modules and optimizers as that."""
