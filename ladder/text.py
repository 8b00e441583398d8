"""Text that cannot control a terminal."""


def printable(text: str, keep: str = "") -> str:
    r"""`text` with all but `keep` escaped that is not printable: a newline as \n, \udcff."""
    shown = []
    for character in text:
        if not character.isprintable() and character not in keep:
            character = character.encode("unicode_escape").decode()
        shown.append(character)
    return "".join(shown)


def show(line: str) -> None:
    """Print one line as logs have it: a file name in it cannot control the terminal."""
    print(printable(line))
