"""The swap in an installed NeMo-RL: in this process, before and after its modules are there, and in a Ray actor's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "docs" / "swap-nemo-rl.md").read_text()

#: As much of NeMo-RL as matters: where the barrier is defined, who takes it from there, and the controller, an actor.
BARRIER = """
from typing import Literal
CheckpointMutationKind = Literal["other", "later_kind"]
CHECKPOINT_MUTATION_KINDS = ("other", "later_kind")
class DataPlaneMutationCut: ...
class DataPlaneCheckpointBarrier: ...
"""
PACKAGE = {
    "nemo_rl/__init__.py": "",
    "nemo_rl/algorithms/__init__.py": "",
    "nemo_rl/algorithms/rollout_checkpointing/__init__.py": "",
    "nemo_rl/algorithms/rollout_checkpointing/barrier.py": BARRIER,
    "nemo_rl/algorithms/ledger.py": (
        "from nemo_rl.algorithms.rollout_checkpointing.barrier import CHECKPOINT_MUTATION_KINDS as KINDS\n"
        "from nemo_rl.algorithms.rollout_checkpointing.barrier import DataPlaneCheckpointBarrier\n"
    ),
    "nemo_rl/algorithms/single_controller.py": (
        "from nemo_rl.algorithms.ledger import DataPlaneCheckpointBarrier, KINDS\n"
        "class Controller:\n"
        "    def __init__(self):\n"
        "        self.barrier = DataPlaneCheckpointBarrier()\n"
        "    def where_its_barrier_is_from(self):\n"
        "        return [base.__module__ for base in type(self.barrier).__mro__ if base is not object]\n"
        "    async def takes(self, kind):\n"
        "        async with self.barrier.mutation(kind) as cut:\n"
        "            cut.require_live()\n"
        "        return kind in KINDS\n"
    ),
    "nemo_rl/algorithms/actor.py": (
        "import ray\n"
        "from nemo_rl.algorithms.single_controller import Controller\n"
        "SingleControllerActor = ray.remote(Controller)\n"
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in PACKAGE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def ran(folder: Path, program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


LOOK = """
import asyncio
from nemo_rl.algorithms.single_controller import Controller
controller = Controller()
print(controller.where_its_barrier_is_from()[0], asyncio.run(controller.takes("later_kind")))
"""


@pytest.mark.parametrize("before", ["", "import nemo_rl.algorithms.single_controller\n", "import nemo_rl.algorithms\n"])
def test_case_G41_whoever_takes_the_barrier_has_the_swapped_one_whenever_it_was_imported(
    folder: Path, before: str
) -> None:
    """The modules may move, and be there before: the definition is found, and what others have taken from it."""
    program = f"{before}from impl.nemo_install import install\ninstall()\nassert install() == ()\n{LOOK}"
    assert ran(folder, program).split() == ["impl.nemo", "True"]


def test_case_G41_the_install_imports_nothing_of_nemo_rl_nor_torch(folder: Path) -> None:
    """It runs in every worker of a cluster."""
    program = (
        "import sys\nfrom impl.nemo_install import install\ninstall()\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'nemo_rl', 'torch', 'numpy', 'ray'}))"
    )
    assert ran(folder, program).strip() == "[]"


def test_without_the_install_the_controller_has_its_own_barrier(folder: Path) -> None:
    """The look at it can tell the two apart."""
    look = LOOK.replace(', asyncio.run(controller.takes("later_kind"))', "")
    assert ran(folder, look).strip() == "nemo_rl.algorithms.rollout_checkpointing.barrier"


@pytest.mark.needs("ray")
@pytest.mark.slow
@pytest.mark.parametrize("hook", [True, False])
def test_case_G41_the_block_of_the_guide_swaps_the_barrier_in_a_ray_actor(folder: Path, hook: bool) -> None:
    """The controller is an actor, in a process of its own, which a swap in the driver does not reach."""
    pytest.importorskip("ray", reason="ray: ray is not installed")
    (block,) = re.findall(r'^```python title="launch\.py"\n(.*?)^```$', GUIDE, re.MULTILINE | re.DOTALL)
    block = block.replace("nemo_rl.algorithms.single_controller", "nemo_rl.algorithms.actor")
    assert "impl.nemo_install.install" in block
    if not hook:
        block = re.sub(r"ray\.init\(.*\)", "ray.init()\nfrom impl.nemo_install import install\ninstall()", block)
    look = "\nprint(ray.get(controller.where_its_barrier_is_from.remote())[0])\n"
    took = ran(folder, block + look).split()[-1]
    assert took == ("impl.nemo" if hook else "nemo_rl.algorithms.rollout_checkpointing.barrier")
