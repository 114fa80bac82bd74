"""What scripts of this folder share; no script itself."""
