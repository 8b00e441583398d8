"""What pages are made of: tables in Markdown, pictures in HTML."""

from html import escape

from ladder.show.tables import Cell


def pipes(lines: list[list[Cell]], left: tuple[int, ...] = (0,)) -> str:
    """A Markdown table. The columns of `left` are at the left, those of numbers at the right.

    Cells are no HTML.
    """
    header, *body = lines
    ruler = [Cell("---" if k in left else "---:") for k in range(len(header))]
    text = ""
    for line in [header, ruler, *body]:
        texts = []
        for k, cell in enumerate(line):
            one_line = " ".join(cell.text.replace("|", r"\|").split())
            if line is not header and k not in left:  # a number stays on one line
                one_line = one_line.replace(" ", "\N{NO-BREAK SPACE}")
            texts.append(f"**{one_line}**" if cell.bold else one_line)
        text += f"| {' | '.join(texts)} |\n"
    return text.replace("<", "&lt;")


def text_table(heads: list[str], lines: list[list[str]], left: tuple[int, ...] = (0,)) -> str:
    """A Markdown table; the columns of `left` are at the left."""
    return pipes([[Cell(text) for text in line] for line in [heads, *lines]], left)


def embedded(name: str, alt: str, folder: str) -> str:
    """The HTML that shows docs/<name>.svg, or its narrow variant on a small screen."""
    source = f'<source media="(max-width: 600px)" srcset="{folder}{name}-narrow.svg">'
    image = f'<img src="{folder}{name}.svg" alt="{escape(alt)}">'
    return f"<picture>{source}{image}</picture>"
