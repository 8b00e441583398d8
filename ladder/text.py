"""Text that cannot control a terminal."""


def printable(text: str, keep: str = "") -> str:
    r"""`text` with its unprintable characters escaped (a newline as \n), except those in `keep`."""
    shown = []
    for character in text:
        if not character.isprintable() and character not in keep:
            character = character.encode("unicode_escape").decode()
        shown.append(character)
    return "".join(shown)


def show(line: str):
    """Print one line as logs have it: a file name in it cannot control the terminal."""
    print(printable(line))
