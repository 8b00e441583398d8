"""`python -m ladder` is the `ladder` command. No script imports this file."""

from ladder.commands.main import main

if __name__ == "__main__":
    raise SystemExit(main())
