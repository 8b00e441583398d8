"""The code that no rung changes.

Every run uses cli, corpus (shards), batches and run (log, probe, machine, errors, files). Only
ddp_run.py uses ranks and checkpoint. No run uses commands/, which holds the `ladder` command.
"""
