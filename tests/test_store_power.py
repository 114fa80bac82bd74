"""Power cuts: every state that POSIX lets a crash leave of two saves, a retention, a resume and the same step again.

A real run writes through a simulated disk. After each of its calls every crash state is built and checked; then each
fsync in turn is left out, and the check has to find what that loses.
"""

import asyncio

import pytest
from crash_states import Recording, recorded, resumed
from simulated_disk import SimulatedDisk, Tree, crash_trees

import spec.machines.store.variants  # noqa: F401 - registers the variants
from spec.machines.store import store

MEMBERS = ("sampler.json", "loader.json", "spares.json", "ledger.json", "buffer.json", "trainer.json")
PARTICIPANTS = ("rows-000.safetensors", "rows.json", "trainer/value.json")

WHOLE, DURABLE, LATEST, FENCE = (
    "published_is_whole", "acknowledged_is_durable", "latest_is_whole", "fence_is_durable",
)  # fmt: skip


def save_sites(save: int, *, rows: bool = True, retention: bool = True) -> list[tuple[str, str]]:
    """Each fsync of one save, in order, and the property that is lost with it."""
    participants = PARTICIPANTS if rows else PARTICIPANTS[1:]
    files = [*MEMBERS, *participants, "manifest.json", "manifest.sha256"]
    sites = [(f"save {save}: file {name}", WHOLE) for name in files]
    sites += [(f"save {save}: directory trainer", WHOLE), (f"save {save}: directory", WHOLE)]
    sites += [(f"save {save}: parent after the rename", DURABLE), (f"save {save}: LATEST", LATEST)]
    return [*sites, (f"save {save}: parent before old files go", WHOLE)] if retention else sites


def claim_sites(life: int) -> list[tuple[str, str]]:
    """The fsyncs of taking the lock."""
    return [(f"life {life}: WRITER", FENCE), (f"life {life}: parent after WRITER", FENCE)]


#: Every fsync of the whole run. The first is of the directory in which the checkpoint directory is made.
SITES = [
    ("parent of the checkpoint directory", FENCE),
    *claim_sites(1),
    *save_sites(1, rows=False, retention=False),
    *save_sites(2),
    *claim_sites(2),
    *save_sites(3),
]

#: What the store machine calls the same omission. It takes fencing numbers for durable and has no hint's contents.
VARIANTS = {
    "file rows-000.safetensors": "no_data_fsync",
    "file manifest.json": "no_manifest_fsync",
    "directory": "no_directory_fsync",
    "parent after the rename": "no_parent_fsync",
}


@pytest.fixture(scope="module")
def undisturbed() -> Recording:
    """The run with every crash state."""
    return asyncio.run(recorded(every=True))


async def test_case_E03_no_crash_state_loses_an_acknowledged_checkpoint_or_shows_half_of_one(
    undisturbed: Recording,
) -> None:
    """Case E03: every subset of what is not synced, at every moment; nothing is sampled and nothing left out.

    The counts are pinned: a change of the writer that changes them should be looked at.
    """
    assert undisturbed.violation is None
    assert len(undisturbed.disk.synced) == len(SITES)
    assert undisturbed.moments == 169
    assert undisturbed.states == 165_377
    assert len(undisturbed.trees) == 206


async def test_case_E03_a_run_resumes_from_every_crash_state_as_it_was_at_a_save(undisturbed: Recording) -> None:
    """The whole run comes back, saves again, and clears away what the crash had left.

    Inside leftovers the two extremes stand for all: nothing is read from them.
    """
    found = set()
    for tree in undisturbed.trees:
        name, image = await resumed(tree)
        assert name is None or image == undisturbed.images[name]
        found.add(name)
    assert found == {None, *undisturbed.images}


@pytest.mark.parametrize("number", range(len(SITES)), ids=[site for site, _ in SITES])
async def test_case_E03_each_fsync_of_the_writer_is_needed(number: int) -> None:
    """Case E03: left out, a crash finds a state that breaks a property; none is there for nothing."""
    recording = await recorded(number)
    assert recording.violation is not None, f"{recording.disk.synced[number]} may be left out"
    assert recording.violation.startswith(f"{SITES[number][1]}:"), recording.violation
    assert is_of(SITES[number][0], recording.disk.synced[number])


def is_of(site: str, path: str) -> bool:
    """Whether the path that was synced is the one the table names."""
    _, _, what = site.rpartition(": ")
    if what.startswith("file "):
        return path.endswith(f"/{what.removeprefix('file ')}")
    if what.startswith("directory"):
        return path.endswith("/trainer") if what == "directory trainer" else "/.staging-" in path
    if what in ("WRITER", "LATEST"):
        return f".temporary-{what}" in path
    return path == ("/disk" if what == "parent of the checkpoint directory" else "/disk/run")


@pytest.mark.parametrize("site", list(VARIANTS))
def test_the_store_machine_loses_the_same_property_with_the_same_fsync(site: str) -> None:
    """Two accounts of one protocol, written apart: the machine's variant and the real writer agree."""
    variant = store.variants[VARIANTS[site]]
    assert variant.breaks == dict(SITES)[f"save 2: {site}"]


def test_the_simulated_disk_keeps_what_was_synced_and_any_part_of_the_rest() -> None:
    """By hand: one synced file, one that is not, and a rename."""
    disk = SimulatedDisk()
    for name, synced in (("safe", True), ("other", False)):
        handle = disk.open_new(f"/{name}")
        disk.write(handle, b"1234")
        if synced:
            disk.fsync(handle)
            disk.fsync_dir("/")
        disk.close(handle)
    disk.rename("/safe", "/moved")
    unsafe = (b"", b"1234", b"12", b"\0\0\0\0")
    expected: set[Tree] = {(("safe", b"1234"),), (("moved", b"1234"),)}
    expected |= {(("other", found), ("safe", b"1234")) for found in unsafe}
    expected |= {(("moved", b"1234"), ("other", found)) for found in unsafe}
    assert set(crash_trees(disk.root, every=True)) == expected
