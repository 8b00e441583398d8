"""GPT-2's tokenizer in a folder of weights, so that transformers and lm_eval find it there."""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from ladder.cli import BLOCK_SIZE
from ladder.corpus import VOCABULARY_FILES
from ladder.files import write_atomic

NAMES = ("vocab.json", "merges.txt")  # what transformers calls VOCABULARY_FILES
CONFIG = "tokenizer_config.json"
END = "<|endoftext|>"
FIELDS = {"tokenizer_class": "GPT2Tokenizer", "model_max_length": BLOCK_SIZE}
FIELDS |= {"bos_token": END, "eos_token": END, "unk_token": END}
DOWNLOAD = "import tiktoken; tiktoken.get_encoding('gpt2')"
SECONDS = 15  # a network that swallows packets would hold tiktoken for minutes


def cached() -> list[Path]:
    """The two files of GPT-2's vocabulary in tiktoken's cache; empty if they are not there."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or f"{tempfile.gettempdir()}/data-gym-cache"
    paths = [Path(folder) / name for name in VOCABULARY_FILES]
    return paths if all(path.is_file() for path in paths) else []


@cache
def download():
    """Let tiktoken fill its cache, once in this process, within SECONDS or not at all."""
    with suppress(subprocess.TimeoutExpired):
        command = [sys.executable, "-c", DOWNLOAD]
        subprocess.run(command, capture_output=True, timeout=SECONDS)


def save(folder: Path) -> bool:
    """Write the tokenizer into `folder`; False if GPT-2's vocabulary is not to be had.

    Raises OSError.
    """
    if not (folder / CONFIG).exists():
        if not cached():
            download()
        for path, name in zip(cached(), NAMES, strict=False):
            write_atomic(folder / name, path.read_bytes())
        if cached():
            write_atomic(folder / CONFIG, json.dumps(FIELDS, indent=1).encode())
    return (folder / CONFIG).exists()
