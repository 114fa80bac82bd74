"""A small real run that is killed again and again, and an audit of what became of every prompt.

toy_task     the task and the policy: real tensors, a real optimizer, generation beside training
child        the run itself, one process a life; tells its parent what it does, and logs what it trains
lives        starts a life, follows its events, and kills it with SIGKILL at a chosen one
parent       one life after the other, and the table at the end
audit        reads the final checkpoint and the independent log, and counts what is lost or doubled
"""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
