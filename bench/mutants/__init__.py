"""Mutants of the protocol part of `impl`: what is edited, in a copy of the tree, and what notices it.

`operators.py` derives the edits, `groups.py` says of which files, `copies.py` copies the tree, `hits.py` says which
statements a scenario or a test runs, `judging.py` asks those that run a mutant's line, in a process of their own
(`children.py`, `asking.py`), and `results.py` keeps what was found out. The command is `bench/library_mutants.py`.
"""
