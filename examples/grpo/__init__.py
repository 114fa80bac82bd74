"""A real run: group-relative policy optimisation of a tiny transformer, killed and resumed, with an account at the end.

setting       the size of a run, as one file that every life of it reads
arithmetic    the task: prompts as text, their tokens, and the reward of an answer
transformer   the policy: a small causal transformer, and sampling from it
objective     group-relative advantages and the clipped policy-gradient loss
learner       policy, optimizer and the frozen copies that generate; the rows of a group, a train step
life          one process of the run, from a checkpoint or from nothing to the end of the data
recording     what a life writes down beside its checkpoints: keys, steps, occupancy, figures of every save
outcome       reads all of that back: the steps that count, over all lives
figures       three PNGs of it
checks        what has to hold at the end, each a claim with what was found
killing       one life after the other, killed at seeded moments; progress on a terminal; the end
"""
