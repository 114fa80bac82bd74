"""Looks into a checkpoint directory without changing it: what `python -m impl fsck` and `inspect` show."""
