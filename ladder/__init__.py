"""What no rung changes: corpus reading, run header, log, result and command line."""
