"""What makes a number out of runs.

scripts: what can be run. notes: what is said of a script. effective: what it declares, and ran
otherwise. without, merge: the top script without one optimisation.
kinds: what rows are compared with. folder: climb.json, the logs of a climb, and what is due.
rounds: its runs. process: a run in a process of its own. others: what else the machine does.
matmul: this machine's rates. rates: a GPU's, as owners measured them. fits: the B of a card. work:
the counted work of a step, and its roofline. stages: forward, backward and optimizer of a step,
timed. rows: from logs to rows and gains. losses: of long runs. stats: intervals. training: a run of
train.py, however often it was resumed.
"""
