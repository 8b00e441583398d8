"""Text that cannot control a terminal."""


def printable(text: str, keep: str = "") -> str:
    r"""`text` with all but `keep` escaped that is not printable: a newline as \n, \udcff."""
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def show(line: str) -> None:
    """Print one line as logs have it: a file name in it cannot control the terminal."""
    print(printable(line))
