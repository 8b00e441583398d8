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

    Changes of neighbours are parts of their own: git would call them a conflict.
    """
    in_ours = cuts(base, ours)
    in_theirs = cuts(base, theirs)
    i = j = k = 0
    for cut in sorted(in_ours.keys() & in_theirs.keys()):
        mine, my_next = in_ours[cut]
        other, other_next = in_theirs[cut]
        yield base[i:cut], ours[j:mine], theirs[k:other]
        yield [], ours[mine:my_next], theirs[other:other_next]  # what they insert there
        i, j, k = cut, my_next, other_next


def cuts(base: list, side: list) -> dict[int, tuple[int, int]]:
    """Where `base` can be cut beside something that `side` left as it was.

    With the two places in `side` that this stands for: between them it inserts.
    """
    ends = {0: 0}
    starts = {len(base): len(side)}
    for start, place, size in SequenceMatcher(
        None, base, side, autojunk=False
    ).get_matching_blocks():
        for n in range(size):
            starts[start + n] = place + n
            ends[start + n + 1] = place + n + 1
    found = {}
    for cut in starts | ends:
        found[cut] = ends.get(cut, starts.get(cut)), starts.get(cut, ends.get(cut))
    return found
