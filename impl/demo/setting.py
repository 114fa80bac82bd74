"""The size of the demo's run, shared by the process that runs it and the one that watches."""

PROMPTS = 46
EPOCHS = 2
PROMPTS_PER_STEP = 4
GENERATIONS = 16
#: The last batch of an epoch is short.
STEPS = EPOCHS * -(-PROMPTS // PROMPTS_PER_STEP)
#: Rows of the data whose generation always fails: they have to end as dropped, once in each epoch.
BROKEN_ROWS = (11, 30)
CHECKPOINTS = "checkpoints"
TRAINED_LOG = "trained.jsonl"
