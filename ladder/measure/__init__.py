"""What makes a number out of runs.

scripts: what can be run. kinds: what rows are compared with. rounds: what runs next. process: a run
in a process of its own. matmul: the rate of a large matmul. rows: rows and gains. stats: intervals.
work: the counted work of a step, and its roofline.
"""
