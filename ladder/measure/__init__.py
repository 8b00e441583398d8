"""What makes a number out of runs.

scripts: what can be run. notes: what is said of a script. without, merge: the top script
without one optimisation. kinds: what rows are compared with. folder: climb.json, the logs of a
climb, and what is due. rounds: its runs. process: a run in a process of its own. matmul: the rate
of a large matmul. rows: rows and gains. stats: intervals. rates: a GPU's, as owners measured them.
work: the counted work of a step, and its roofline.
"""
