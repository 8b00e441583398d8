"""The code that no rung changes.

Every run uses cli, corpus, batches and run (log, result, output, text, probe, machine, cards,
memory, signals, errors, checkout, disk). Only ddp_run.py, train.py and fsdp_run.py use distributed,
and the last two checkpoint and weights. No run uses measure/, show/ or commands/, which are the
`ladder` command.
"""
