"""What no rung changes.

Behind every run: cli, corpus (shards), batches, run (log, probe, machine, errors, files). Behind
ddp_run.py only: ranks, checkpoint. The `ladder` command, in commands/, is behind no run.
"""
