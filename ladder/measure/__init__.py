"""What makes a number out of runs.

scripts: what can be run. process: a run in a process of its own. gemm: the rate of a large matmul.
parser: a log read back. rows: rows and gains. work: the counted work of a step, and its roofline.
"""
