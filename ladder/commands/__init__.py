"""The `ladder` command: one module for each subcommand, main.py starts them."""
