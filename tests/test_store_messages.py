"""What each fault says to whoever reads it: which file or holder, the likely cause, what to do next. Word for word.

ROOT stands for the directory. Lines are broken anywhere between two words. A message that changes has to be read once
more, by somebody, in the table.
"""

import errno
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from run_situations import Run, forge, saved
from store_situations import IDENTITY, failing_files, new_store, open_store, publish, text_of

from impl import CleancutError
from impl.store import Draft, StagedDirectory


def two_writers(root: Path) -> None:
    with open_store(root, name="first"):
        new_store(root, name="second").open()


def two_of_one_process(root: Path) -> None:
    with open_store(root, name="first"):
        new_store(root, name="first").open()


def overtaken(root: Path) -> None:
    with open_store(root, name="zombie") as zombie:
        (root / ".LOCK").unlink()
        with open_store(root, name="successor"):
            publish(zombie, 9)


def failing(call: str, error: int, nth: int = 0) -> Callable[[Path], None]:
    """A save whose `nth` call of a kind fails."""

    def situation(root: Path) -> None:
        store = new_store(root, failing_files(error, call=call, nth=nth))
        try:
            store.open()
            publish(store, 2)
        finally:
            store.close()

    return situation


def unreadable(error: int) -> Callable[[Path], None]:
    def situation(root: Path) -> None:
        new_store(root, failing_files(error, call="read_into", nth=0)).reader("step_1-1")

    return situation


def changed(member: str, change: Callable[[Path], object]) -> Callable[[Path], None]:
    """A checkpoint of which one file was changed afterwards."""

    def situation(root: Path) -> None:
        change(root / "step_1-1" / member)
        text_of(root, "step_1-1")

    return situation


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def to_link(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def enlarge(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(2 << 30)


def renamed(root: Path) -> None:
    (root / "step_1-1").rename(root / "step_7-1")
    new_store(root).reader("step_7-1")


def copied(root: Path) -> None:
    shutil.copytree(root / "step_1-1", root / "step_01-1")
    new_store(root).catalogue()


def filled(fill: Callable[[StagedDirectory], object]) -> Callable[[Path], None]:
    """A participant that writes something wrong."""

    def situation(root: Path) -> None:
        with open_store(root) as store:

            def attempt(staged: StagedDirectory) -> dict[str, object]:
                fill(staged)
                return {}

            store.publish(Draft(2, store.take_sequence(), "full", None, None, IDENTITY), attempt)  # type: ignore[arg-type]

    return situation


def twice(staged: StagedDirectory) -> None:
    staged.writer().write_bytes("a.bin", b"")
    staged.writer().write_bytes("a.bin", b"")


STORE: dict[str, Callable[[Path], object]] = {
    "busy": two_writers,
    "busy with oneself": two_of_one_process,
    "zombie": overtaken,
    "disk full": failing("write", errno.ENOSPC, 2),
    "quota": failing("mkdir", errno.EDQUOT),
    "input/output error": failing("fsync", errno.EIO, 1),
    "read-only": failing("lock", errno.EROFS),
    "permission lost": failing("mkdir", errno.EACCES),
    "too many open files": failing("open_new", errno.EMFILE, 1),
    "no locks": failing("lock", errno.ENOLCK),
    "another mount": failing("rename", errno.EXDEV),
    "may not read": unreadable(errno.EACCES),
    "cannot be read": unreadable(errno.EIO),
    "flipped bit": changed("words.json", flip),
    "flipped bit in the manifest": changed("manifest.json", flip),
    "cut short": changed("trainer/weights.bin", lambda path: path.write_bytes(b"")),
    "removed": changed("trainer/weights.bin", Path.unlink),
    "link": changed("words.json", to_link),
    "link to a directory": changed("trainer", to_link),
    "huge manifest": changed("manifest.json", enlarge),
    "renamed": renamed,
    "two of one sequence": copied,
    "two files of one name": filled(twice),
    "path trick": filled(lambda staged: staged.writer().write_bytes("../a", b"")),
    "no JSON": filled(lambda staged: staged.writer().write_json("a.json", {"a": [1, float("nan")]})),
    "no plain tensor": filled(
        lambda staged: staged.writer().write_tensors("t.safetensors", {"k": torch.eye(2).to_sparse()})
    ),
}


@pytest.mark.parametrize("name", STORE)
def test_the_store_says_what_happened_why_and_what_to_do(name: str, tmp_path: Path) -> None:
    """One error each, of a public type."""
    with open_store(tmp_path) as store:
        publish(store, 1)
    with pytest.raises(CleancutError) as caught:
        STORE[name](tmp_path)
    assert said(caught.value, tmp_path) == expected(name)


def twice_trained(document: dict[str, object]) -> None:
    accounts = document["accounts"]
    assert isinstance(accounts, dict)
    accounts["trained"] *= 2


def another_schema(root: Path) -> None:
    manifest = json.loads((root / "step_1-1" / "manifest.json").read_text())
    manifest["schema"] = 2
    forge_manifest(root, json.dumps(manifest))


def duplicate_key(root: Path) -> None:
    text = (root / "step_1-1" / "manifest.json").read_text().strip()
    forge_manifest(root, f'{text[:-1]},"step":1}}')


def outside(root: Path) -> None:
    manifest = json.loads((root / "step_1-1" / "manifest.json").read_text())
    manifest["files"]["../../etc/passwd"] = manifest["files"]["rows.json"]
    forge_manifest(root, json.dumps(manifest))


def forge_manifest(root: Path, text: str) -> None:
    """Replace the manifest, with the digest that fits."""
    (root / "step_1-1" / "manifest.json").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    (root / "step_1-1" / "manifest.sha256").write_text(f"{digest}  manifest.json\n")


RESTORE: dict[str, Callable[[Path], object]] = {
    "restore: no checkpoint": lambda root: shutil.rmtree(root / "step_1-1"),
    "restore: all damaged": lambda root: flip(root / "step_1-1" / "ledger.json"),
    "restore: schema": another_schema,
    "restore: duplicate key": duplicate_key,
    "restore: path trick": outside,
    "restore: accounts": lambda root: forge(root, "trainer.json", twice_trained),
}


@pytest.mark.parametrize("name", RESTORE)
async def test_a_restore_says_what_happened_why_and_what_to_do(name: str, tmp_path: Path) -> None:
    """And the run it was asked of is untouched."""
    await saved(tmp_path)
    RESTORE[name](tmp_path)
    run = Run(tmp_path)
    before = run.state()
    with pytest.raises(CleancutError) as caught:
        await run.checkpointer.restore()
    assert said(caught.value, tmp_path) == expected(name)
    assert run.state() == before


def test_every_message_of_the_table_has_its_situation() -> None:
    """And none is there twice."""
    names = [entry.partition("|")[0].strip() for entry in MESSAGES.strip().split("\n\n")]
    assert sorted(names) == sorted([*STORE, *RESTORE])


def said(error: CleancutError, root: Path) -> str:
    """The type and the text of an error."""
    return f"{type(error).__name__}: {error}".replace(str(root), "ROOT")


def expected(name: str) -> str:
    """The entry of the table."""
    for entry in MESSAGES.strip().split("\n\n"):
        named, _, text = entry.partition("|")
        if named.strip() == name:
            return " ".join(text.split())
    raise AssertionError(f"the table has no {name!r}")


MESSAGES = """
busy |
    StoreBusy: ROOT is being written by writer first. Two runs that save into one directory would remove each
    other's checkpoints. Stop the other one (its lock ends with it), or use another directory. Nothing was
    published.

busy with oneself |
    StoreBusy: ROOT is being written by another checkpointer of this process (writer first). Two runs that save
    into one directory would remove each other's checkpoints. Stop the other one (its lock ends with it), or use
    another directory. Nothing was published.

zombie |
    StoreBusy: ROOT is being written by writer successor. Two runs that save into one directory would remove
    each other's checkpoints. Stop the other one (its lock ends with it), or use another directory. Nothing was
    published.

disk full |
    StoreFull: writing ROOT/step_2-2 failed: injected into write 2 (errno 28). There is no room, or no free
    inode, left for the checkpoint. The previous checkpoints are untouched and the run can go on; free space and
    save again.

quota |
    StoreFull: writing ROOT/step_2-2 failed: injected into mkdir 0 (errno 122). There is no room, or no free
    inode, left for the checkpoint. The previous checkpoints are untouched and the run can go on; free space and
    save again.

input/output error |
    StoreFailed: writing ROOT/step_2-2 failed: injected into fsync 1 (errno 5). The disk or the file system
    reports a fault. The attempt was abandoned and the previous checkpoints are untouched; look at the disk
    before the next save.

read-only |
    StoreFailed: locking ROOT failed: injected into lock 0 (errno 30). The process may not write there. Give it
    the right to, or choose another directory; nothing was published.

permission lost |
    StoreFailed: writing ROOT/step_2-2 failed: injected into mkdir 0 (errno 13). The process may not write
    there. Give it the right to, or choose another directory; nothing was published.

too many open files |
    StoreFailed: writing ROOT/step_2-2 failed: injected into open_new 1 (errno 24). The process or the machine
    has too many files open, which says nothing about the checkpoint. Raise the limit (`ulimit -n`) or close
    files, and try again; nothing was changed.

no locks |
    StoreFailed: locking ROOT failed: injected into lock 0 (errno 37). The file system does not do what the
    store needs. `python -m impl fsck --probe DIR` tries it out; use a local file system, or one that passes.
    Nothing was published.

another mount |
    StoreFailed: publishing ROOT/step_2-2 failed: injected into rename 0 (errno 18). A part of the checkpoint
    directory is a mount of its own, so a checkpoint cannot be published by one rename, and copying would not be
    atomic. Use a directory that lies whole on one file system.

may not read |
    StoreFailed: reading ROOT/step_1-1/manifest.json failed: injected into read_into 0 (errno 13). The process may
    not read it, which says nothing about the checkpoint. Give the process the right to, or run as the user that
    wrote it; nothing was changed.

cannot be read |
    CheckpointDamaged: step_1-1/manifest.json cannot be read: injected into read_into 0 (errno 5). The disk has lost
    it, or it was replaced by something that is no file. Restore another checkpoint; `python -m impl fsck ROOT`
    shows which are whole.

flipped bit |
    CheckpointDamaged: step_1-1/words.json is damaged: 18 bytes were read, and the sha256 is not the one in
    the manifest. The disk or a tool changed it after it was published. Restore another checkpoint; `python -m
    impl fsck ROOT` shows which are whole.

flipped bit in the manifest |
    CheckpointDamaged: step_1-1/manifest.json does not match manifest.sha256: one of the two is damaged. Restore
    an older checkpoint.

cut short |
    CheckpointDamaged: step_1-1/trainer/weights.bin is damaged: it has 0 bytes, the manifest says 600. It was
    cut short or changed after it was published. Restore another checkpoint; `python -m impl fsck ROOT` shows
    which are whole.

removed |
    CheckpointDamaged: step_1-1/trainer/weights.bin is not there. The checkpoint is incomplete: an interrupted
    copy, or files were removed. Restore another checkpoint; `python -m impl fsck ROOT` shows which are whole.

link |
    CheckpointDamaged: step_1-1/words.json is no regular file but a directory, a link, a fifo or a device.
    Somebody put it there; it is not opened. Restore another checkpoint; `python -m impl fsck ROOT` shows which
    are whole.

link to a directory |
    CheckpointDamaged: step_1-1/trainer is no directory but a file or a link, which could lead anywhere.
    Somebody put it there; it is not followed. Restore another checkpoint; `python -m impl fsck ROOT` shows
    which are whole.

huge manifest |
    CheckpointDamaged: step_1-1/manifest.json has 2147483648 bytes, more than any real one (536870912). It was
    not read. Restore another checkpoint; `python -m impl fsck ROOT` shows which are whole.

renamed |
    CheckpointDamaged: step_7-1/manifest.json belongs to step_1-1: the directory was renamed or its files were
    mixed with another's. Give it its own name back, or restore an older checkpoint.

two of one sequence |
    CheckpointCorrupt: ROOT: step_01-1 and step_1-1 both carry the sequence 1. One of them was copied or renamed
    by hand, and there is no telling which is meant; move one of them elsewhere.

two files of one name |
    UsageError: 'a.bin' was written twice into one checkpoint. Two participants use the same file name; give one
    of them another.

path trick |
    UsageError: '../a' cannot name a file of a checkpoint. Likely an id or a tensor key was used as a file name.
    Use a fixed name of lower-case letters, digits, '_', '-' and '.', such as 'rows-000.safetensors', and keep
    ids inside the file.

no JSON |
    UsageError: a.json.a[1] cannot be saved exactly: nan is no JSON number. Nothing was written for it; store
    None, or a text.

no plain tensor |
    UsageError: t.safetensors: tensor 'k' cannot be saved: its layout is torch.sparse_coo. Give a plain dense
    tensor.

restore: no checkpoint |
    CheckpointNotFound: there is no checkpoint in ROOT. Either the directory is wrong or nothing was saved yet;
    begin a new run, or name the right directory.

restore: all damaged |
    CheckpointCorrupt: ROOT: the only checkpoint is not valid. step_1-1/ledger.json is damaged: 798 bytes were
    read, and the sha256 is not the one in the manifest. The disk or a tool changed it after it was published.
    Restore another checkpoint; `python -m impl fsck ROOT` shows which are whole. To begin anew here would bury
    the run: look at the disk with `python -m impl fsck ROOT`, bring a copy back, or use another directory.

restore: schema |
    CheckpointIncompatible: step_1-1/manifest.json has schema version 2; this version reads 1 only. It was
    written by another version of the library. Use that version, or name another checkpoint with step=.

restore: duplicate key |
    CheckpointCorrupt: step_1-1/manifest.json is not strict JSON: the key 'step' stands twice in one object. It
    was damaged, or written by another tool. Restore an older checkpoint.

restore: path trick |
    CheckpointCorrupt: step_1-1/manifest.json: files.'../../etc/passwd': this is no name of a file inside the
    checkpoint. It was edited, or written by a faulty version. Do not trust it; restore another checkpoint.

restore: accounts |
    CheckpointCorrupt: step_1-1 contradicts itself: trainer.json: accounts: the accounts count keys of epoch 0
    between 3 and 4 as trained twice. It was put together from two checkpoints, edited, or written by a faulty
    version. Nothing was changed; restore an earlier checkpoint.
"""
