"""The code that no rung changes.

Every run uses cli, corpus (shards), batches and run (log, probe, machine, errors, files). Only
ddp_run.py uses ranks, checkpoint and weights. No run uses commands/, which is the `ladder` command.
"""
