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
    for old, our, their in aligned(*lines):
        part = changed(old, our, their)
        same_number = len(old) in (len(our), len(their))
        if part is None and (same_number or always_words):
            part = merge_words(old, our, their)
        if part is None:
            part = ["<<<<<<< this script\n", *our, "=======\n", *their, ">>>>>>> the edit\n"]
        merged += part
    return "".join(merged)


def merge_words(*sides: list[str]) -> list[str] | None:
    """The merge of the words in three lists of lines; None if both sides changed the same word."""
    merged = []
    words = [re.findall(r"\w+|\W", "".join(side)) for side in sides]
    for old, our, their in aligned(*words):
        part = changed(old, our, their)
        if part is None:
            return None
        merged += part
    return merged


def changed(old: list, our: list, their: list) -> list | None:
    """The one that differs from `old`; None if both do, and from each other."""
    if our in (old, their):
        return their
    if their == old:
        return our
    return None


def aligned(base: list, ours: list, theirs: list) -> Iterator[tuple[list, list, list]]:
    """Yield the parts of the three, lines or words, that stand for each other.

    Changes of neighbours are parts of their own: git would call them a conflict.
    """
    in_ours = cuts(base, ours)
    in_theirs = cuts(base, theirs)
    start = our_start = their_start = 0
    for cut in sorted(in_ours.keys() & in_theirs.keys()):
        our_end, our_next = in_ours[cut]
        their_end, their_next = in_theirs[cut]
        yield base[start:cut], ours[our_start:our_end], theirs[their_start:their_end]
        yield [], ours[our_end:our_next], theirs[their_end:their_next]  # what they insert there
        start, our_start, their_start = cut, our_next, their_next


def cuts(base: list, side: list) -> dict[int, tuple[int, int]]:
    """Where `base` can be cut: before and behind each item that `side` left as it was.

    To each cut belong two places in `side`; what is between them was inserted.
    """
    ends = {0: 0}
    starts = {len(base): len(side)}
    matcher = SequenceMatcher(None, base, side, autojunk=False)
    for start, place, size in matcher.get_matching_blocks():
        for n in range(size):
            starts[start + n] = place + n
            ends[start + n + 1] = place + n + 1
    places = {}
    for cut in starts.keys() | ends.keys():
        end = ends.get(cut, starts.get(cut))  # of what is kept before it; else none is inserted
        start = starts.get(cut, ends.get(cut))
        places[cut] = (end, start)
    return places
