"""Shards, corpora and batches."""

import errno
import hashlib
import http.client
import io
import os
import shutil
import signal
import time
import urllib.request
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import regex
import tiktoken
import torch
from conftest import ROOT, SMALL, load, rung

from ladder import corpus as data
from ladder.batches import Batches
from ladder.corpus import Corpus, encode_documents, load_corpus, load_splits, pieces
from ladder.errors import BadInput
from ladder.files import lock, write_whole
from ladder.shards import open_shard, write_shard


def corpus_of(*sizes):
    """Tokens 0, 1, 2, … cut into shards of the given sizes."""
    ends = np.cumsum(sizes)
    stream = np.arange(ends[-1], dtype=np.uint16)
    return Corpus("count", "0" * 64, np.split(stream, ends[:-1]))


def read(batches, count):
    """The first token of each row of the next batches, and whether every target is the next one."""
    found = [next(batches) for _ in range(count)]
    assert all(torch.equal(y, x + 1) for x, y in found)
    return torch.cat([x[:, 0] for x, _ in found]).tolist()


def test_an_epoch_holds_every_token_once_in_order_across_shards():
    batches = Batches(corpus_of(10, 1, 30, 5, 40), B=2, T=4)  # 86 tokens: 21 rows and 1 left
    assert (batches.rows_per_epoch, batches.dropped) == (21, 1)
    x, y = next(batches)
    assert x.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]] and x.dtype == torch.int64
    assert y.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert read(batches, 10) == [*range(8, 84, 4), 0]  # after the last row comes the first
    assert Batches(corpus_of(9), B=2, T=4).rows_per_epoch == 2  # a batch and its last target
    with pytest.raises(BadInput, match=r"has 8 tokens, but one batch needs 9 \(B=2 x T=4 \+ 1\)"):
        Batches(corpus_of(8), B=2, T=4)


@pytest.mark.parametrize("shuffle", [None, 7])
def test_any_number_of_ranks_reads_what_one_process_would(shuffle):
    corpus = corpus_of(33, 7, 61)  # 25 rows of 4 tokens
    one = Batches(corpus, 1, 4, shuffle=shuffle)
    whole = read(one, 48)
    ranks = [Batches(corpus, 2, 4, rank, 3, shuffle) for rank in range(3)]
    together = [first for _ in range(8) for rank in ranks for first in read(rank, 1)]
    assert together == whole
    assert {rank.position for rank in ranks} == {one.position} == {48}
    resumed = Batches(corpus, 2, 4, shuffle=shuffle)
    resumed.position = 20  # as a checkpoint of any layout has it; the second epoch begins at 25
    assert read(resumed, 14) == whole[20:]


def test_a_shuffled_epoch_has_every_row_once_in_an_order_of_its_own():
    batches = Batches(corpus_of(101), B=5, T=4, shuffle=1)  # 25 rows
    first, second = read(batches, 5), read(batches, 5)
    assert sorted(first) == sorted(second) == list(range(0, 100, 4))
    assert first != second and first != sorted(first)
    assert first != read(Batches(corpus_of(101), B=5, T=4, shuffle=2), 5)


def test_shard_round_trip_and_layout(tmp_path):
    path = tmp_path / "some_train_000000.bin"
    tokens = np.array([1, 50256, 3], dtype=np.uint16)
    write_shard(path, tokens)
    raw = path.read_bytes()
    assert np.frombuffer(raw, "<i4", 256)[:4].tolist() == [20240520, 1, 3, 0]
    assert np.frombuffer(raw, "<u2", offset=1024).tolist() == [1, 50256, 3]
    assert open_shard(path)[:].tolist() == [1, 50256, 3]
    assert os.listdir(tmp_path) == [path.name]


HEADER = {0: 20240520, 1: 1, 2: 40}


@pytest.mark.parametrize(
    ("header", "size", "said"),
    [
        (HEADER, 0, "is empty: expected"),
        (HEADER, 100, "is not a shard: expected 1024 header bytes, found 100"),
        ({0: 20240801}, 1104, "expected magic number 20240520, found 20240801"),
        ({**HEADER, 1: 7}, 1104, "of version 7: expected 1"),
        ({**HEADER, 2: 0}, 1024, "holds no tokens"),
        (HEADER, 1101, "its header says 40 tokens, but 77 bytes were found"),
        (HEADER, 1106, "its header says 40 tokens, but 82 bytes were found"),
    ],
)
def test_bad_shard_is_named_with_what_was_expected_and_found(tmp_path, header, size, said):
    path = tmp_path / "bad.bin"
    numbers = np.zeros(300, "<i4")
    numbers[list(header)] = list(header.values())
    path.write_bytes(numbers.tobytes()[:size])
    with pytest.raises(BadInput) as caught:
        load_corpus(str(path), say=print)
    assert str(path) in str(caught.value) and said in str(caught.value)


def test_more_shards_than_files_may_be_open(tmp_path):
    resource = pytest.importorskip("resource")
    for name in range(80):
        (tmp_path / f"{name}.bin").symlink_to("0.bin")
    (tmp_path / "0.bin").unlink()
    write_shard(tmp_path / "0.bin", np.arange(9, dtype=np.uint16))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        assert len(load_corpus(str(tmp_path), say=print)) == 720
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_shard_that_is_cut_under_a_run_is_named(tmp_path):
    """A memory map would kill the process; what is overwritten is checked as it is read."""
    path = tmp_path / "a.bin"
    write_shard(path, np.arange(40_000, dtype=np.uint16))
    batches = Batches(load_corpus(str(path), say=print), B=1, T=16)
    assert read(batches, 1) == [0]
    os.truncate(path, 30_000)
    batches.position = 2000
    with pytest.raises(BadInput, match=r"a\.bin was cut while it was in use"):
        next(batches)
    path.write_bytes(b"\xff" * 100_000)
    with pytest.raises(BadInput, match="token id 65535"):
        next(batches)


def test_more_tokens_than_a_header_counts_are_refused(tmp_path):
    huge = np.broadcast_to(np.uint16(0), (2**31,))
    with pytest.raises(BadInput, match="a shard has at most 2147483647"):
        write_shard(tmp_path / "a.bin", huge)


@pytest.mark.parametrize("name", ["a.bin", "folder/a.bin", "folder/a.txt", "a.txt"])
def test_a_fifo_is_no_corpus(name, tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / name)
    with pytest.raises(BadInput, match="is not a regular file"):
        load_corpus(str(tmp_path / name.split("/")[0]), say=print)


def test_a_place_of_the_text_that_cannot_be_read_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("LADDER_DATA", "x" * 5000)
    with pytest.raises(BadInput, match=r"cannot read x{5000}.*: File name too long"):
        load_corpus(None, print)
    write_shard(tmp_path / "a.bin", np.arange(9, dtype=np.uint16))
    shard = open_shard(tmp_path / "a.bin")
    shard.file = Mock(read=Mock(side_effect=OSError(errno.ESTALE, "Stale file handle")))
    with pytest.raises(BadInput, match=r"cannot read .*a\.bin: Stale file handle"):
        shard[:]


def test_a_folder_that_cannot_be_read_is_not_left_out(tmp_path, monkeypatch):
    (tmp_path / "secret").mkdir()
    (tmp_path / "a.txt").write_text("to be")
    real = os.scandir

    def scandir(path):
        if "secret" in str(path):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(BadInput, match=r"cannot read .*secret: Permission denied"):
        load_corpus(str(tmp_path), say=print)


def test_folder_of_shards_leaves_val_and_texts_out(tmp_path, monkeypatch, capsys):
    tmp_path = tmp_path / "fineweb-1.5"
    tmp_path.mkdir()
    write_shard(tmp_path / "my-val_train_000001.bin", np.array([3, 4], np.uint16))
    write_shard(tmp_path / "interval_train_000000.bin", np.array([1, 2], np.uint16))
    write_shard(tmp_path / "interval_val_000000.bin", np.array([9, 9], np.uint16))
    (tmp_path / "README.md").write_text("not read")
    monkeypatch.chdir(tmp_path)
    corpus = load_corpus(".", say=print)
    assert corpus.read(0, 4).tolist() == [1, 2, 3, 4] and len(corpus) == 4
    out = capsys.readouterr().out
    assert corpus.name == "fineweb-1.5" and "its texts are not read" in out
    assert f"{corpus.name} has 1 of its 3 shards held out (val)" in out


def test_of_a_folder_of_texts_a_link_to_a_folder_is_left_out_with_a_note(
    tmp_path, bytes_for_tokens, capsys
):
    (tmp_path / "more").mkdir()
    (tmp_path / "A.TXT").write_text("to be")
    (tmp_path / "more" / "b.md").write_text("or not")
    (tmp_path / "more" / "up").symlink_to(tmp_path)
    corpus = load_corpus(str(tmp_path), say=print)
    assert len(corpus) == len("to be") + 1 + len("or not")
    assert f"{tmp_path}/more/up is a link" in capsys.readouterr().out


def words(text: str) -> list[int]:
    """A stand-in tokenizer that, like GPT-2's, never joins a word and the newline after it."""
    return [len(word) for word in regex.findall(r" ?\p{L}+| ?[^\s\p{L}]+|\s+(?!\S)|\s+", text)]


def test_pieces_encode_as_the_whole():
    text = "ab cd\n\n\n ef,\n  gh \n\nij\n" * 7 + "end"
    for size in range(1, 40):
        parts = list(pieces(text, size))
        assert "".join(parts) == text
        assert [n for part in parts for n in words(part)] == words(text)
    assert len(list(pieces(text, 10))) > 5
    documents = encode_documents([b"ab", b"c d"], lambda text: list(text.encode()))
    assert documents.tolist() == [97, 98, 50256, 99, 32, 100]  # each is separated from the next


def test_a_part_of_a_part_of_several_shards():
    whole = corpus_of(10, 1, 30)
    part = whole.part(5, 40).part(4, 9)
    assert part.read(0, 5).tolist() == [9, 10, 11, 12, 13] and len(part) == 5
    assert len(whole.part(41, 41)) == 0  # the last tenth of a text of a few words


@pytest.fixture
def bytes_for_tokens(tmp_path, monkeypatch):
    """Texts are tokenized into their bytes, and kept under tmp_path; the texts so far."""
    texts = []

    def encode(text):
        texts.append(text)
        return list(text.encode())

    monkeypatch.setattr(data, "DATA_DIR", tmp_path / "data")
    monkeypatch.setattr(data, "gpt2_encoder", lambda timeout_s: encode)
    return texts


def test_default_corpus_is_downloaded_once_and_a_broken_download_leaves_nothing(
    tmp_path, bytes_for_tokens, monkeypatch
):
    body, said = b"to be or not to be\n", []
    folder = tmp_path / "data" / "tinyshakespeare"
    monkeypatch.delenv("LADDER_DATA", raising=False)
    monkeypatch.setattr(data, "TINYSHAKESPEARE_SHA256", hashlib.sha256(body).hexdigest())
    proxy = ValueError("proxy URL with no authority")
    answers = [http.client.IncompleteRead(body[:9]), io.BytesIO(body[:9]), proxy, io.BytesIO(body)]
    monkeypatch.setattr(urllib.request, "urlopen", Mock(side_effect=answers))
    for why in ("IncompleteRead", "has the wrong SHA-256", "proxy URL"):
        assert load_corpus(None, said.append).name == "python-docs"
        (line,) = (line for line in said if line.startswith("note  no tinyshakespeare ("))
        assert why in line and not folder.exists()
        said.clear()
    for _ in range(2):
        corpus = load_corpus(None, said.append)
        assert corpus.name == "tinyshakespeare" and len(corpus) == len(body)
        assert os.listdir(folder) == ["input.txt"] and (folder / "input.txt").read_bytes() == body
    (folder / "input.txt").write_bytes(body[:-5])
    with pytest.raises(BadInput, match="is not tinyshakespeare"):
        load_corpus(None, said.append)


def test_a_download_that_trickles_or_never_ends_is_given_up(monkeypatch):
    monkeypatch.setattr(data, "VOCABULARY_TIMEOUT_S", 0.1)
    for read, error in ((lambda *n: time.sleep(2), TimeoutError), (bytes, BadInput)):
        (response := io.BytesIO()).read = read
        monkeypatch.setattr(urllib.request, "urlopen", Mock(return_value=response))
        with pytest.raises(error, match=r"no answer|wrong SHA-256"):
            data.download("http://localhost", "")


def test_a_write_that_breaks_leaves_no_half_file(tmp_path):
    with pytest.raises(TypeError):
        write_whole(tmp_path / "a.bin", b"half", "not bytes")
    with pytest.raises(OSError) as full:  # says which file

        def write(file):
            raise OSError(28, "No space left on device")

        write_whole(tmp_path / "b.bin", write)
    assert full.value.filename == str(tmp_path / "b.bin")
    assert os.listdir(tmp_path) == []


def test_without_a_network_a_script_still_trains_on_real_text(tmp_path, monkeypatch, capsys):
    for name in ("LADDER_DATA", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody is there
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
    monkeypatch.setattr(data, "DATA_DIR", tmp_path / "data")
    flags = [*SMALL, "--steps", "1", "--log-dir", str(tmp_path / "runs")]
    load(rung(0)).main(flags)
    out = capsys.readouterr().out
    assert "note  no tinyshakespeare (" in out
    assert "one token per byte; do not compare" in out
    assert "data=python-docs-bytes" in out and "step    1/1" in out
    assert not list((tmp_path / "data").rglob("*.txt"))


def test_text_is_tokenized_once(tmp_path, bytes_for_tokens):
    text, said = tmp_path / "play.txt", []
    text.write_text("to be")
    first, second = (load_corpus(str(text), said.append) for _ in range(2))
    assert bytes_for_tokens == ["to be"] and len(said) == 1
    assert first.read(0, 5).tolist() == second.read(0, 5).tolist() == list(b"to be")
    assert first.sha256 == second.sha256 == hashlib.sha256(b"to be").hexdigest()
    alike = ("The text.\n3787810\n", "The text.\n4011120\n")  # in 48 bits of their SHA-256
    for content in alike:
        text.write_text(content)
        assert bytes(load_corpus(str(text), print).read(0, 18).astype(np.uint8)).decode() == content


def test_two_texts_are_not_one_with_their_bytes(tmp_path, bytes_for_tokens):
    (tmp_path / "a.txt").write_bytes(b"one\0two")
    (tmp_path / "x" / "a").mkdir(parents=True)
    for name in ("one", "two"):
        (tmp_path / "x" / "a" / f"{name}.txt").write_text(name)
    one, two = (load_corpus(str(tmp_path / name), say=print) for name in ("a.txt", "x/a"))
    assert one.sha256 != two.sha256
    assert [bytes(c.read(0, 4).astype(np.uint8)) for c in (one, two)] == [b"one\0", b"one\x50"]


def zero_tokens(path):
    path.write_bytes(path.read_bytes()[:1024] + bytes(10))


@pytest.mark.parametrize(
    "damage", [lambda p: os.truncate(p, 1030), lambda p: p.write_bytes(b""), zero_tokens]
)
def test_damaged_tokens_of_a_text_are_made_anew(damage, tmp_path, bytes_for_tokens):
    text, said = tmp_path / f"{'x' * 250}.txt", []
    text.write_text("to be")
    load_corpus(str(text), said.append)
    (cache,) = (tmp_path / "data" / "shards").iterdir()
    damage(cache)
    assert load_corpus(str(text), said.append).read(0, 5).tolist() == list(b"to be")
    assert str(cache) in said[1] and "written anew" in said[1]
    assert open_shard(cache)[:].tolist() == list(b"to be")


@pytest.mark.real_corpus
def test_tinyshakespeare_is_338025_tokens(monkeypatch, tmp_path):
    monkeypatch.setattr(data, "DATA_DIR", tmp_path)
    corpus = load_corpus(None, say=print)
    assert corpus.name == "tinyshakespeare" and len(corpus) == 338_025
    assert corpus.sha256 == data.TINYSHAKESPEARE_SHA256
    text = (Path(os.environ["LADDER_DATA"]) / "tinyshakespeare" / "input.txt").read_text()
    encoding = tiktoken.get_encoding("gpt2")
    assert encoding.decode(corpus.read(0, len(corpus)).tolist()) == text
    cut = [t for piece in pieces(text, 1000) for t in encoding.encode_ordinary(piece)]
    assert cut == corpus.read(0, len(corpus)).tolist()


def prepare(*flags):
    return load(ROOT / "data" / "prepare.py").main([str(flag) for flag in flags])


def test_prepare_writes_shards_that_scripts_read(tmp_path, bytes_for_tokens, capsys):
    text, out = tmp_path / "play.txt", tmp_path / "shards"
    text.write_text("to be or not to be, that is the question")
    prepare(text, "--out", out, "--shard-tokens", 15, "--val-fraction", 0.25)
    shards = ["play_train_000000.bin", "play_train_000001.bin", "play_val_000000.bin"]
    assert sorted(os.listdir(out)) == [".lock", *shards]
    corpus = load_corpus(str(out), say=print)
    assert bytes(corpus.read(0, len(corpus)).astype(np.uint8)) == text.read_bytes()[:30]
    for taken, said in ((out, "already holds shards"), (text, f"error {text}: File exists")):
        assert prepare(text, "--out", taken) == 2
        assert said in capsys.readouterr().err
    with lock(out):
        assert prepare(text, "--out", out) == 2
    assert "another run is at work" in capsys.readouterr().err
    assert prepare(text, "--out", tmp_path / "other", "--val-fraction", 1e-7) == 2
    assert "--val-fraction 1e-07 of 40 tokens is not even one" in capsys.readouterr().err


def test_prepare_shows_no_shard_before_the_last_is_written(tmp_path, bytes_for_tokens):
    """Training on a part of them would look like training on all."""
    text, out, seen = tmp_path / "play.txt", tmp_path / "out", []
    text.write_text("to be or not to be")
    module = load(ROOT / "data" / "prepare.py")

    def write(path, tokens):
        seen.append(sorted(out.glob("*.bin")))
        if len(seen) == 4:
            raise KeyboardInterrupt
        write_shard(path, tokens)

    module.write_shard = write
    words = [str(text), "--out", str(out), "--shard-tokens", "5", "--val-fraction", "0.1"]
    assert module.main(words) == 130 and seen == [[]] * 4 and os.listdir(out) == [".lock"]
    module.write_shard = write_shard
    mine = ("chapters/1.txt", "business/notes.tmp", "invoices/a_val_000000.bin/x", "x")
    mine = [*(f"unfinished-shards-{name}" for name in mine), "unfinished-projects/a_val_000000.bin"]
    killed = out / "unfinished-shards-12345678"
    for name in (f"{killed.name}/play_val_000000.bin", *mine):
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert module.main(words) == 0 and len([*out.glob("*.bin")]) == 5
    assert not killed.exists()
    assert all((out / name).exists() for name in mine)
    (out / "unfinished-shards-x").unlink()
    shutil.rmtree(out / "unfinished-shards-invoices")

    killed.mkdir()  # while the shards moved
    (out / "play_train_000000.bin").rename(killed / "play_train_000000.bin")
    assert module.main(words) == 2  # it deletes no part of them
    with pytest.raises(BadInput, match="unfinished-shards-12345678 is of a data"):
        load_corpus(str(out), say=print)


def test_a_signal_while_shards_move_loses_none(tmp_path, bytes_for_tokens, monkeypatch):
    (tmp_path / "play.txt").write_text("to be or not to be")
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda *a: (rename(*a), signal.raise_signal(15)))
    assert prepare(tmp_path / "play.txt", "--out", tmp_path / "out", "--shard-tokens", 5) == 0
    assert len([*(tmp_path / "out").glob("*.bin")]) == 4


@pytest.mark.parametrize("name", ["...txt", "shards.txt"])
def test_prepare_takes_no_folder_that_is_not_its_own(name, tmp_path, bytes_for_tokens, capsys):
    (tmp_path / name).write_text("to be")
    assert prepare(tmp_path / name) == 2
    assert "cannot name a folder of data/: name one with --out" in capsys.readouterr().err


def test_prepare_writes_no_bytes_as_tokens(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(data, "DATA_DIR", tmp_path / "data")
    monkeypatch.setattr(data, "gpt2_encoder", lambda timeout_s: None)
    (tmp_path / "play.txt").write_text("to be")
    assert prepare(tmp_path / "play.txt", "--out", tmp_path / "shards") == 2
    assert "shards hold GPT-2 tokens" in capsys.readouterr().err
    assert not (tmp_path / "shards").exists()


@pytest.mark.parametrize("name", ["a_val_000000", "validation", "VAL", "Val_0", "a_valid_000"])
def test_held_out_text_is_the_val_shards_or_the_last_tenth(name, tmp_path):
    write_shard(tmp_path / "a_train_000000.bin", np.arange(100, dtype=np.uint16))
    text, held_out = load_splits(str(tmp_path), say=print)
    assert text.read(0, 90).tolist() == list(range(90)) and len(text) == 90
    assert held_out.read(0, 10).tolist() == list(range(90, 100))
    write_shard(tmp_path / f"{name}.bin", np.arange(50, dtype=np.uint16))
    assert [*map(len, load_splits(str(tmp_path), say=print))] == [100, 50]


def test_texts_that_memory_or_tiktoken_cannot_hold(tmp_path, monkeypatch):
    class PanicException(BaseException):  # as pyo3's, which has this name alone
        pass

    monkeypatch.setattr(data, "DATA_DIR", tmp_path / "data")
    (tmp_path / "big.txt").write_text("to be")
    for trouble, kind, said in (
        (PanicException("StackOverflow"), BadInput, "tiktoken cannot split it: big has hundreds"),
        (MemoryError(), BadInput, "big.txt does not fit into memory: cut it"),
        (KeyboardInterrupt("Ctrl-C"), KeyboardInterrupt, "Ctrl-C"),
    ):
        encode = Mock(side_effect=trouble)
        monkeypatch.setattr(data, "gpt2_encoder", lambda timeout_s, encode=encode: encode)
        with pytest.raises(kind, match=said):
            load_corpus(str(tmp_path / "big.txt"), print)


def test_names_of_texts_do_not_control_the_terminal(tmp_path, bytes_for_tokens, capsys):
    (tmp_path / "a\x1b[2J").mkdir()
    (tmp_path / "a\x1b[2J" / "b\x07.txt").write_text("to be")
    (tmp_path / "a\x1b[2J" / "link").symlink_to(tmp_path)
    assert prepare(tmp_path / "a\x1b[2J", "--out", tmp_path / "out") == 0
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable() and out.count("\\x1b[2J") == 3, out


def test_no_link_is_written_through(tmp_path):
    (tmp_path / "precious").write_bytes(b"1")
    (tmp_path / f"page.{os.getpid()}.tmp").symlink_to(tmp_path / "precious")
    write_whole(tmp_path / "page", b"2")
    assert (tmp_path / "page").read_bytes() == b"2" and not (tmp_path / "page").is_symlink()
    assert (tmp_path / "precious").read_bytes() == b"1"
    (tmp_path / ".lock").symlink_to(tmp_path / "new")
    with pytest.raises(BadInput, match="is a link to another file: delete it"):
        lock(tmp_path)
    assert not (tmp_path / "new").exists()


def test_a_rewritten_script_stays_executable(tmp_path):
    (script := tmp_path / "baseline.py").write_bytes(b"1")
    script.chmod(0o755)
    write_whole(script, b"2")
    assert script.stat().st_mode & 0o777 == 0o755
