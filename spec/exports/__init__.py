"""The text of a machine for other model checkers."""
