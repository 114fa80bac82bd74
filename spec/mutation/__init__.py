"""Who checks the checks: every small wrong edit of a machine's text, and whether a property notices it.

`edits` derives the mutants of a text, `mutants` says which texts a machine has and puts a mutant in its place,
`judging` finds out what notices it, `resting` on what each conjunct of a property rests, `running` does so for many,
`command_line` is `python -m spec mutate`. `survivors.json` names each mutant that nothing notices, with the reason, and
`rests.json` the wrong machine that each conjunct rests on; both are keyed by function and text.
"""
