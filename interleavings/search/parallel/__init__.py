"""A search shared by processes, of this machine or of a Ray cluster."""
