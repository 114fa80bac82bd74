"""A small real run that is killed again and again, and an audit of what became of every prompt.

toy_task     the task and the policy: real tensors, a real optimizer, generation beside training
child        the run itself, one process a life; tells its parent what it does, and logs what it trains
parent       starts a life, kills it with SIGKILL at a chosen event, starts the next, and shows the table
audit        reads the final checkpoint and the independent log, and counts what is lost or doubled
"""
