"""What `python -m interleavings check` prints of a failure: enough to understand it without opening the code.

Three faults, each put into the library for the length of a test. Line numbers are left out, every other word is pinned.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from impl import Ledger, LedgerSnapshot
from impl.barrier import AdmissionCore, Ticket
from interleavings import Trace
from interleavings.command_line import FAILS, main
from interleavings.correspondence.refinement import MachineWords
from spec.machines.barrier import BarrierScope
from spec.machines.barrier import barrier as machine

# Faults that a save would refuse by itself are left to the scenarios, the machines and the model to find.
pytestmark = pytest.mark.usefixtures("saves_that_do_not_ask")


def printed(scenario: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command prints of a failing scenario, from the last steps to the failure's last line."""
    assert main(["check", scenario, "--output", str(directory)]) == FAILS
    text = capsys.readouterr().out
    return re.sub(r"\.py:\d+", ".py", text.partition("  trace:")[0])


def test_a_step_that_the_protocol_forbids_is_shown_with_its_rule_and_the_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer enters again while a checkpoint drains."""
    original = AdmissionCore.request_cut

    def request_cut(core: AdmissionCore, ticket: Ticket) -> bool:
        granted = original(core, ticket)
        core.gate_open = not granted
        return granted

    monkeypatch.setattr(AdmissionCore, "request_cut", request_cut)
    assert printed("barrier", tmp_path, capsys).endswith(
        """\
   1  task-step main: barrier.py in Run.main
   2  task-step writer-0: barrier.py in Run.write
        request_slot(task=writer-0, kind=writes)
        enter_slot(task=writer-0, kind=writes)
   3  task-step checkpoint-0: barrier.py in Run.read
        request_cut(task=checkpoint-0, kind=checkpoint)
   4  task-step writer-0: barrier.py in Run.write
        leave_slot(task=writer-0, kind=writes)
        request_slot(task=writer-0, kind=writes)
        enter_slot(task=writer-0, kind=writes)
      violation: refinement: the implementation did enter_slot(task=writer-0, kind=writes) where the protocol \
forbids it: the machine 'barrier' does not enable enter_slot(0) there
      the rule: enter_slot (writer): Writer `w` enters its slot. Shut from the moment a checkpoint is asked for: \
this guard is the barrier.
      the machine is at:
        - writer 0 is waiting, asked late (at waiting, rounds_left 0, late 1)
        - checkpoint 0 is queued, place 1 in the queue (cut queued, place 1)
      what may happen there: cancel_outside(1), open_cut(0), request_slot(1), withdraw_cut(0), withdraw_slot(0)
      stock asyncio can do this: yes
"""
    )
    # The file has it too, for whoever replays or explains it later.
    steps = Trace.load(tmp_path / "interleaving-barrier.json").steps
    assert steps[2].did == ("request_cut(task=checkpoint-0, kind=checkpoint)",)


def test_a_prompt_that_is_lost_on_disk_is_shown_with_what_happened_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint without the ledger: the loader's cursor is ahead of what is saved."""
    original = Ledger.snapshot

    def snapshot(ledger: Ledger, cut: Any, owned_elsewhere: Any) -> LedgerSnapshot:
        whole = original(ledger, cut, owned_elsewhere)
        return LedgerSnapshot(MappingProxyType({}), whole.next_group, whole.next_admission, whole.accounts)

    monkeypatch.setattr(Ledger, "snapshot", snapshot)
    text = printed("commit", tmp_path, capsys)
    assert "        reserve_batch(admission=1, groups=(1,), keys=((0, 1),))\n" in text
    assert "        read_buffer()\n        read_ledger()\n        read_trainer()\n        close_cut(" in text
    assert text.endswith(
        """\
        publish(name=step_1-1, step=1, kind=full)
      violation: one_owner_on_disk: in step_1-1 prompt (epoch 0, row 1) has no owner: it is behind the loader's \
cursor, and neither in the ledger nor in the buffer, the spare pool or the accounts; a run that resumes here never \
draws it again
      until now, prompt (epoch 0, row 1): reserve_batch, commit_admission, dispatch, open_cut, close_cut, publish
      stock asyncio can do this: no
"""
    )


def test_a_deadlock_says_who_waits_for_whom_and_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sampler that waits for the trainer inside its slot; no fault is put in, it is a control."""
    text = printed("gate_in_slot", tmp_path, capsys)
    assert text.endswith(
        """\
      deadlock: nothing can run any more; blocked: generate-1, main, rollout-pump, train-pump; train-pump waits for \
rollout-pump, rollout-pump waits for train-pump
      blocked:
        - task generate-1, at generation.py in Generation.commit_group, waits for a slot (kind 'group_commits') of \
barrier 'checkpoint', shut by the checkpoint of train-pump, opened at checkpointer.py, which drains, held by train-pump
        - task main, at controller.py in Controller.run, waits for the end of task train-pump, held by train-pump
        - task rollout-pump, at steps.py in commit_admission, waits for the in_order gate, which \
the trainer opens (dispatch cursor 1, trainer version 1), held by train-pump
        - task train-pump, at checkpointer.py in Checkpointer._begin, waits for the checkpoint of barrier \
'checkpoint', before which must end: slot of kind 'admissions' of rollout-pump, opened at rollout_pump.py, held by \
rollout-pump
      circle: train-pump -> rollout-pump -> train-pump
      stock asyncio can do this: no
"""
    )


def test_the_words_of_a_machine_are_its_own_and_name_what_a_scope_has_not() -> None:
    """An action that a scope switches off is never enabled; that is another cause than a guard that is false."""
    model = machine.model(BarrierScope(writers=1, rounds=1, checkpointers=1))
    words = MachineWords(model)
    assert words.rule("leave_slot").startswith("leave_slot (writer): Writer `w` gives its slot back. Always possible")
    assert words.rule("start_child").startswith("start_child is no action in this scope")
    assert words.rule("sing") == "the machine has no action 'sing'"
    assert words.state(model.initial) == []
    asked = model.step_named(model.initial, "request_slot", 0)
    assert asked is not None
    assert words.state(asked.state) == ["writer 0 is waiting (at waiting, rounds_left 0)"]


def test_list_names_the_controls_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """A scenario that has to fail would alarm whoever runs it unawares."""
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.endswith("(a control, which has to fail)")] == ["gate_in_slot"]
