"""A three-way merge of texts, finer than git's: changes of neighbouring lines are no conflict."""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher


def merge(base: str, ours: str, theirs: str, always_words: bool = False) -> str:
    """Apply the change from `base` to `theirs` to `ours`; conflicts stand between markers.

    If both sides changed the same lines and one side kept their number (or `always_words`), the
    words in them are merged.
    """
    merged = []
    lines = [side.splitlines(keepends=True) for side in (base, ours, theirs)]
    for old, mine, other in aligned(*lines):
        part = changed(old, mine, other)
        same_number = len(old) in (len(mine), len(other))
        if part is None and (same_number or always_words):
            part = merge_words(old, mine, other)
        if part is None:
            part = ["<<<<<<< this script\n", *mine, "=======\n", *other, ">>>>>>> the edit\n"]
        merged += part
    return "".join(merged)


def merge_words(*sides: list[str]) -> list[str] | None:
    """The merge of the words in three lists of lines; None if both sides changed the same word."""
    merged = []
    words = [re.findall(r"\w+|\W", "".join(side)) for side in sides]
    for old, mine, other in aligned(*words):
        part = changed(old, mine, other)
        if part is None:
            return None
        merged += part
    return merged


def changed(old: list, mine: list, other: list) -> list | None:
    """The one that differs from `old`; None if both do, and from each other."""
    if mine in (old, other):
        return other
    if other == old:
        return mine
    return None


def aligned(base: list, ours: list, theirs: list) -> Iterator[tuple[list, list, list]]:
    """Yield the parts of the three, lines or words, that stand for each other.

    Edits that overlap share a part, and so do insertions at one place. Changes of neighbours do
    not: git would call them a conflict.
    """
    both = []
    for side, lines in enumerate((ours, theirs)):
        both += [(start, end, side, new) for start, end, new in edits(base, lines)]
    both.sort()

    groups = []  # of edits that overlap
    stop = -1
    for edit in both:
        start, end, *_ = edit
        if groups and (start < stop or (start, end) == groups[-1][0][:2]):
            groups[-1].append(edit)
        else:
            groups.append([edit])
        stop = max(stop, end)

    position = 0
    for group in groups:
        first = group[0][0]
        unchanged = base[position:first]
        yield unchanged, unchanged, unchanged
        position = max(end for _, end, _, _ in group)
        old = base[first:position]
        new = [old.copy(), old.copy()]
        for start, end, side, lines in reversed(group):
            new[side][start - first : end - first] = lines
        yield old, *new
    rest = base[position:]
    yield rest, rest, rest


def edits(base: list, side: list) -> Iterator[tuple[int, int, list]]:
    """Yield (start, end, lines): `side` has `lines` where `base` has base[start:end]."""
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, base, side, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        if i2 - i1 == j2 - j1:  # one for one
            for i in range(i1, i2):
                j = j1 + i - i1
                yield i, i + 1, [side[j]]
        else:
            yield i1, i2, side[j1:j2]
