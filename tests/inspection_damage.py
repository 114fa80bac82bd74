"""A directory of every kind of checkpoint, what may befall it, and what a restore makes of each of them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import random
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from run_situations import NumberTrainer, Run

from impl import CheckpointCorrupt, CheckpointDamaged, CheckpointIncompatible, LoaderState
from impl.loaders import EpochOrder
from impl.store import Candidate, Catalogue, DirectoryReader, DirectoryWriter

OPTIONS: dict[str, Any] = {"keep": 6, "epochs": 2}
DOCUMENTS = ("sampler.json", "loader.json", "spares.json", "buffer.json", "ledger.json", "trainer.json", "rows.json")
#: Values that no field expects, or that a terminal, a path or a count chokes on.
HOSTILE: tuple[Any, ...] = (
    0, -1, 1, 5, 15, 16, 2**31, 2**53, 2**63, 10**30, -(10**18), 10**12, 1.5, 1e308, None, True, "", "x", "\x1b[2J\x07",
    "[red]a[/red]", "[/x]", "\u009b31m", "\ud800", "\0", "\r\n\u202e", "é日本", [], {}, [[]], ["a"], {"a": 1},
    "../step_1-2", "step_1-2", "a" * 500, "trained", "reserved", "admitted", "value", "rollout", "trainer",
)  # fmt: skip
NAMES = (
    b"\xff\xfe", b"\x1b[2J", b"step_9-9", b"step_01-2", b"step_5-2", b".deleting-step_1-1", b".temporary-\x1b]0;x\x07",
    b"[red]x[red]", b"[b]", b"a\nb", b"manifest.json", b".nfs0001", b"step_1-2 (copy)", b"\xc2\x9b31m",
)  # fmt: skip


class FolderTrainer(NumberTrainer):
    """A trainer with a number, tensors, and a folder that others fill."""

    def persist(self, staged: int, writer: DirectoryWriter) -> None:
        super().persist(staged, writer)
        ranks = Path(writer.folder("ranks"))
        (ranks / "step").mkdir()
        for name, data in ((".metadata", b"about"), ("__0_0.distcp", b"a" * 300), ("step/__1_0.distcp", b"b")):
            (ranks / name).write_bytes(data)
        writer.write_tensors(
            "weights.safetensors", {"w": torch.arange(6.0), "c": torch.zeros(2, dtype=torch.complex64)}
        )

    def load(self, reader: DirectoryReader) -> None:
        super().load(reader)
        reader.folder("ranks")
        reader.read_tensors("weights.safetensors")


async def every_kind(root: Path) -> Path:
    """Full saves and rollout snapshots of three lives, with every kind of owner, and what a killed writer left."""
    trainer = FolderTrainer(1)
    run = Run(root, **OPTIONS)
    await run.checkpointer.save(trainer)
    first = await run.admit()
    await run.finish(*first.groups)
    await run.train(await run.claim(*first.groups))
    second = await run.admit()
    await run.finish(*second.groups[:2])
    await run.reserve()
    await run.checkpointer.save(trainer)
    await run.divert()
    async with run.barrier.mutation("drop") as cut:
        run.ledger.drop(cut, 8, "failed")
    await run.checkpointer.begin_snapshot()
    await run.checkpointer.close()
    run = Run(root, name="b", **OPTIONS)
    await run.checkpointer.restore(trainer=trainer)
    await run.finish(*second.groups[2:])
    await run.reserve()
    await run.checkpointer.save(trainer)
    await run.checkpointer.begin_snapshot()
    await run.checkpointer.close()
    (root / ".staging-9-dead").mkdir()
    (root / ".staging-9-dead" / "rows-000.safetensors").write_bytes(b"123")
    return root


def contents(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything below a directory: kinds, inodes, times and bytes."""
    found: dict[str, tuple[object, ...]] = {}
    for path in (root, *root.rglob("*")):
        about = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(about.st_mode) else None
        found[os.fsdecode(path)] = (about.st_mode, about.st_ino, about.st_mtime_ns, about.st_ctime_ns, data)
    return found


# -- what may befall a directory --------------------------------------------------------------------------------------


def checkpoints(root: Path) -> list[Path]:
    """Those that still have a manifest."""
    return sorted(path for path in root.glob("step_*") if not path.is_symlink() and (path / "manifest.json").is_file())


def seal(checkpoint: Path, data: bytes) -> None:
    """Replace the manifest, and its digest."""
    (checkpoint / "manifest.json").write_bytes(data)
    (checkpoint / "manifest.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  manifest.json\n")


def replaced(checkpoint: Path, member: str, data: bytes) -> None:
    """Replace a file as a faulty writer would have written it: every digest fits."""
    manifest = json.loads((checkpoint / "manifest.json").read_bytes())
    members = {member: data}
    if member == "ledger.json":
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            buffer = json.loads((checkpoint / "buffer.json").read_bytes())
            entries = len(json.loads(data)["entries"])
            buffer["rows"].update(ledger_sha256=hashlib.sha256(data).hexdigest(), ledger_entries=entries)
            members["buffer.json"] = json.dumps(buffer).encode()
    for name, changed in members.items():
        (checkpoint / name).write_bytes(changed)
        manifest["files"][name].update(length=len(changed), sha256=hashlib.sha256(changed).hexdigest())
    seal(checkpoint, json.dumps(manifest).encode())


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(document) if isinstance(document, dict) else range(len(document)):
        yield document, key
        if isinstance(document[key], dict | list):
            yield from _places(document[key])


def mutated(chance: random.Random, document: Any) -> bytes:
    """The document with one value replaced, removed, doubled or added."""
    places = list(_places(document)) if isinstance(document, dict | list) else []
    if places:
        parent, key = chance.choice(places)
        way = chance.randrange(6)
        if way == 0:
            del parent[key]
        elif way == 1 and isinstance(parent, list):
            parent.append(json.loads(json.dumps(parent[key])))
        elif way == 2 and isinstance(parent, dict):
            parent[chance.choice(("zz", "\x1b[31mred", "[b]", "\ud800k", "4"))] = chance.choice(HOSTILE)
        elif way <= 4 and type(parent[key]) is int:
            parent[key] += chance.choice((-4, -1, 1, 4))
        else:
            parent[key] = chance.choice(HOSTILE)
    return json.dumps(document, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")


def _some_file(chance: random.Random, root: Path) -> Path:
    return chance.choice(sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink()))


def flip(chance: random.Random, root: Path) -> None:
    """A bit."""
    path = _some_file(chance, root)
    data = bytearray(path.read_bytes() or b"\0")
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def cut_short(chance: random.Random, root: Path) -> None:
    """A file that ends early."""
    path = _some_file(chance, root)
    path.write_bytes(path.read_bytes()[: chance.randrange(1 + path.stat().st_size)])


def swap(chance: random.Random, root: Path) -> None:
    """Two files, of one name if there are two."""
    path = _some_file(chance, root)
    other = chance.choice([each for each in sorted(root.rglob(path.name)) if each.is_file()])
    here, there = path.read_bytes(), other.read_bytes()
    path.write_bytes(there)
    other.write_bytes(here)


def become(chance: random.Random, root: Path) -> None:
    """Something else, or nothing: a directory, a link, a fifo, an empty file."""
    path = chance.choice(sorted(root.rglob("*")))
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    target = chance.choice(["/etc/passwd", "/", "nowhere", ".", path.name, "step_1-2"])
    chance.choice((path.mkdir, lambda: path.symlink_to(target), lambda: os.mkfifo(path), path.touch, lambda: None))()


def add(chance: random.Random, root: Path) -> None:
    """Something that nobody saved, under a name that nobody should use."""
    where = chance.choice([root, *sorted(path for path in root.rglob("*") if path.is_dir() and not path.is_symlink())])
    path = os.fsencode(where) + b"/" + chance.choice(NAMES)
    if not os.path.lexists(path):
        os.mkdir(path) if chance.random() < 0.5 else os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


def copy(chance: random.Random, root: Path) -> None:
    """A checkpoint under another name, or moved to it."""
    source = chance.choice(checkpoints(root))
    target = root / chance.choice(("step_01-2", "step_5-2", "step_1-002", "step_3-99", "best", ".deleting-a"))
    if not target.exists():
        source.rename(target) if chance.random() < 0.5 else shutil.copytree(source, target, symlinks=True)


def remove(chance: random.Random, root: Path) -> None:
    """A checkpoint, or all."""
    found = checkpoints(root)
    for each in found if chance.random() < 0.2 else [chance.choice(found)]:
        shutil.rmtree(each)


def edit(chance: random.Random, root: Path) -> None:
    """A document, so that every digest fits."""
    checkpoint, member = chance.choice(checkpoints(root)), chance.choice(DOCUMENTS)
    replaced(checkpoint, member, mutated(chance, json.loads((checkpoint / member).read_bytes())))


def edit_owner(chance: random.Random, root: Path) -> None:
    """The key of one owner: the counts fit as well."""
    checkpoint = chance.choice(checkpoints(root))
    member, listed = chance.choice((("ledger.json", "entries"), ("spares.json", "spares"), ("buffer.json", "slots")))
    document = json.loads((checkpoint / member).read_bytes())
    if document[listed]:
        owner = chance.choice(document[listed])
        owner[chance.choice(("index", "index", "epoch"))] = chance.choice((0, 1, 3, 5, 7, 15, 16, 99, 2**40, -1))
        replaced(checkpoint, member, json.dumps(document).encode())


def edit_manifest(chance: random.Random, root: Path) -> None:
    """The manifest, with its digest."""
    checkpoint = chance.choice(checkpoints(root))
    seal(checkpoint, mutated(chance, json.loads((checkpoint / "manifest.json").read_bytes())))


def edit_text(chance: random.Random, root: Path) -> None:
    """What is no strict JSON, with the right digest."""
    checkpoint, member = chance.choice(checkpoints(root)), chance.choice(DOCUMENTS)
    text = (checkpoint / member).read_bytes()
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: text.replace(b"{", b'{"a":1,"a":2,', 1),
        lambda: b"[" * 100_000 + b"]" * 100_000,
        lambda: text.replace(b"0", b"NaN", 1),
        lambda: text.replace(b"0", b"9" * 5000, 1),
        lambda: b"\xef\xbb\xbf" + text,
        lambda: text.decode().encode("utf-16"),
        lambda: b"null",
    )
    replaced(checkpoint, member, chance.choice(ways)())


def edit_header(chance: random.Random, root: Path) -> None:
    """The header of a file of tensors, with the right digest."""
    path = chance.choice(sorted(root.glob("step_*/rows-000.safetensors")))
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = mutated(chance, json.loads(data[8:end]))
    replaced(path.parent, path.name, len(header).to_bytes(8, "little") + header + data[end:])


def edit_beside(chance: random.Random, root: Path) -> None:
    """WRITER, LATEST or the lock."""
    path = root / chance.choice(("WRITER", "LATEST", ".LOCK"))
    texts = (
        b"", b"\xff\xfe", b"step_1-2\x1b[2J\n", b'{"fence": 3, "holder": "\\u001b[31m[/x]"}', b"[" * 100_000,
        b'{"fence": 3, "holder": "\\ud800"}', b'{"fence": 3, "holder": "\\u009b31m\\n\\rx"}',
    )  # fmt: skip
    path.write_bytes(chance.choice(texts))


def set_times(chance: random.Random, root: Path) -> None:
    """As a clock that went wrong leaves them."""
    for path in root.rglob("*"):
        os.utime(path, (chance.choice((0, 4e9, -1e9, 1e11)),) * 2, follow_symlinks=False)


DAMAGES = (
    flip, cut_short, swap, become, add, copy, remove, edit, edit, edit, edit_owner, edit_owner, edit_manifest,
    edit_manifest, edit_text, edit_header, edit_beside, set_times,
)  # fmt: skip


# -- what a checkpoint is, found out otherwise ------------------------------------------------------------------------


async def restored(root: Path, candidate: Candidate) -> tuple[str, str, dict[str, int]]:
    """What a fresh run makes of one checkpoint: a state in the words of fsck, the error, and the owners."""
    run = Run(root, **OPTIONS)
    run.checkpointer._store.catalogue = lambda: Catalogue((candidate,), (), (), 99)  # type: ignore[method-assign]
    try:
        await run.checkpointer.restore(step=candidate.step, trainer=FolderTrainer())
    except CheckpointDamaged as error:
        # Raised by the trainer, after the choice was made: a restore stops there, and passes over nothing.
        return ("contradictory" if "not listed in the manifest" in str(error) else "damaged"), str(error), {}
    except CheckpointIncompatible as error:
        return "incompatible", str(error), {}
    except CheckpointCorrupt as error:
        return "contradictory", str(error), {}
    loader, accounts = run.loader.state(), run.ledger.accounts
    owners = {"trained": accounts.trained_count, "dropped": len(accounts.dropped), "pending": len(run.ledger.entries)}
    owners |= {"buffered": len(run.buffer.slots), "spare": len(run.pool.spares)}
    return "whole", "", {"handed_out": loader.epoch * loader.dataset_length + loader.position, **owners}


def recounted(checkpoint: Path) -> dict[str, int] | None:
    """Lost, doubled and ahead of the loader, key by key, from the JSON alone; None where the loader may be another."""
    documents = {member: json.loads((checkpoint / member).read_bytes()) for member in DOCUMENTS[:-1]}
    loader, accounts = documents["loader.json"]["state"], documents["trainer.json"]["accounts"]
    if loader.keys() != {field.name for field in dataclasses.fields(LoaderState)}:
        return None
    buffered = documents["buffer.json"]["slots"]
    groups = {slot["group"] for slot in buffered}
    pending = [entry for entry in documents["ledger.json"]["entries"] if entry["group"] not in groups]
    single = [*pending, *buffered, *documents["spares.json"]["spares"], *accounts["dropped"]]
    owners = Counter((owner["epoch"], owner["index"]) for owner in single)
    owners.update((t["epoch"], row) for t in accounts["trained"] for row in range(t["first"], t["last"] + 1))
    length, epoch = loader["dataset_length"], loader["epoch"]
    order = EpochOrder(length, loader["seed"], epoch)
    drawn = {(earlier, row) for earlier in range(epoch) for row in range(length)}
    drawn |= {(epoch, order[place]) for place in range(loader["position"])}
    return {
        "handed_out": len(drawn),
        "lost": len(drawn - owners.keys()),
        "doubled": sum(count > 1 for count in owners.values()),
        "ahead_of_the_loader": len(owners.keys() - drawn),
    }
