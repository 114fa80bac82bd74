"""What the page about the protocol shows, read off the machines in `spec` and their enumerated states.

Nothing here knows the protocol: actions, variables, sentences and states come from the text that the engines search, so
a drawing cannot say something else than what is checked.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from html import escape
from typing import Any

import networkx as nx
from layered_drawing import Edge, Node, drawing

from spec.language import Action, Machine, Model
from spec.language import Node as ScalarNode
from spec.language.scalar_form import scalar_form
from spec.machines import MACHINES, SMALL, scopes_named

#: Together these take every way of a prompt that any small scope takes; a test compares.
SCOPES_OF_A_PROMPT = (
    "background", "borrow", "retries", "replay_free", "windowed", "short_dropped", "remainder", "leases",
)  # fmt: skip
#: Each feature is on in one of them, since a feature that is off reads nothing; scopes with further actions are added.
SCOPES_OF_A_MATRIX = (
    "one_pair", "retries", "spares", "borrow", "snapshots", "epochs", "failed_saves", "replay_free", "windowed_tight",
    "weight_fifo_failures", "short_batch", "background",
)  # fmt: skip
CRASHES = ("crash_and_restore", "crash_and_restore_replay_free")


def explored(machine: str, scope: str) -> Iterator[tuple[Model, Any, Any]]:
    """Every transition of a small scope: the model, the state before, and the step."""
    model = MACHINES[machine].model(SMALL[machine][scope][0])
    seen, waiting = {model.initial}, deque([model.initial])
    while waiting:
        state = waiting.popleft()
        for step in model.steps(state):
            yield model, state, step
            if step.state not in seen:
                seen.add(step.state)
                waiting.append(step.state)


def called(machine: Machine, name: str, value: int) -> str:
    """A value of a variable as the machine calls it."""
    return machine.variables[name].called(value)


def standing(machine: Machine, state: Any, prompt: int) -> str:
    """Who owns a prompt, in the words of the machine's own variables."""
    account = called(machine, "account", state.account[prompt])
    slot = called(machine, "slot", state.slot[prompt])
    entry = called(machine, "ledger", state.ledger[prompt])
    if account != "none":
        return account
    if slot in ("ready", "claimed"):
        return slot
    if slot == "unready":
        return f"{entry}, {called(machine, 'trouble', state.trouble[prompt])}"
    if state.spare[prompt]:
        return "spare"
    return "unread" if entry == "no entry" else entry


Ways = Mapping[tuple[str, str], frozenset[str]]


@cache
def ways_of_a_prompt(scopes: tuple[str, ...] = SCOPES_OF_A_PROMPT) -> Ways:
    """From standing to standing, by which actions, over all states of these scopes of the cut machine."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for scope in scopes:
        for model, before, step in explored("cut", scope):
            for prompt in range(len(before.ledger)):
                ways = (standing(model.machine, before, prompt), standing(model.machine, step.state, prompt))
                if ways[0] != ways[1]:
                    found[ways].add(step.action.name)
    return {ways: frozenset(actions) for ways, actions in found.items()}


def life_of_a_prompt() -> str:
    """The ways of a prompt without crashes, as a graph."""
    edges = {ways: sorted(actions - set(CRASHES)) for ways, actions in ways_of_a_prompt().items()}
    edges = {ways: actions for ways, actions in edges.items() if actions}
    ends = {"trained", "dropped"}
    names = dict.fromkeys(["unread", *(name for ways in edges for name in ways)])
    nodes = [Node(name, tuple(name.split(", ")), "end" if name in ends else "") for name in names]
    drawn = [Edge(source, target, tuple(actions), "quiet" if target == "dropped" else "")
             for (source, target), actions in edges.items()]  # fmt: skip
    return drawing("The life of a prompt", nodes, drawn, _rows_of_a_life(edges))


def _rows_of_a_life(edges: Mapping[tuple[str, str], object]) -> dict[str, int]:
    """Each standing below all that lead to it; what is given up lies in the last row, whenever that happens."""
    graph = nx.DiGraph(ways for ways in edges if ways[1] != "dropped")
    while not nx.is_directed_acyclic_graph(graph):
        # A way back, such as a retry: the last of the circle, seen from the beginning.
        graph.remove_edge(*nx.find_cycle(graph, "unread")[-1])
    rows: dict[str, int] = {}
    for name in nx.topological_sort(graph):
        rows[name] = max((rows[before] + 1 for before in graph.predecessors(name)), default=0)
    return {**rows, "dropped": max(rows.values())}


def after_a_crash() -> str:
    """What a restored run takes a prompt for, by what the lost process took it for: a table."""
    rows: dict[str, set[str]] = defaultdict(set)
    for (source, target), actions in ways_of_a_prompt().items():
        if actions & set(CRASHES):
            rows[source].add(target)
    lines = ["| when the process dies it is | after the restore it may also be |", "|---|---|"]
    return "\n".join(
        [*lines, *(f"| {source} | {', '.join(sorted(targets))} |" for source, targets in sorted(rows.items()))]
    )


def states_of_the_barrier() -> str:
    """Every state of one writer and one checkpoint, and every action between them."""
    machine = MACHINES["barrier"]
    model = machine.model(SMALL["barrier"]["one_round"][0])
    number = {model.initial: 0}
    edges: dict[tuple[int, int], list[str]] = defaultdict(list)
    for _, before, step in explored("barrier", "one_round"):
        number.setdefault(step.state, len(number))
        edges[number[before], number[step.state]].append(step.action.name)
    nodes = []
    for state, place in number.items():
        writer, cut = called(machine, "at", state.at[0]), called(machine, "cut", state.cut[0])
        ended = " again" if state.rounds_left[0] == 0 and writer == "outside" else ""
        kind = "cut" if cut == "open" else "end" if model.finished(state) else ""
        nodes.append(Node(str(place), (f"writer {writer}{ended}", f"checkpoint {cut}"), kind))
    drawn = [Edge(str(source), str(target), tuple(actions)) for (source, target), actions in edges.items()]
    return drawing("Every state of one writer and one checkpoint", nodes, drawn)


def order_of_a_save() -> str:
    """The stages of a writer in the store machine, and what takes it from one to the next."""
    machine = MACHINES["store"]
    edges: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for _, before, step in explored("store", "failing_disk"):
        ways = tuple(called(machine, "stage", state.stage[0]) for state in (before, step.state))
        if ways[0] != ways[1] and step.action.name != "crash":
            edges[ways[0], ways[1]].add((step.action.name, step.action.kind))
    names = dict.fromkeys(["idle", *(name for ways in edges for name in ways)])
    rows = {name: value for value, name in machine.variables["stage"].names.items() if name in names}
    nodes = [Node(name, (name,), "cut" if name == "acknowledged" else "") for name in names]
    drawn = [
        Edge(
            source,
            target,
            tuple(sorted(name for name, _ in taken)),
            "quiet" if all(k == "environment" for _, k in taken) else "",
        )
        for (source, target), taken in edges.items()
    ]
    return drawing("The order of a save", nodes, drawn, rows)


def scopes_with_every_action(machine: str, scopes: tuple[str, ...] = ()) -> tuple[str, ...]:
    """These small scopes, and after them whichever have an action that none before had."""
    actions = MACHINES[machine].actions.values()

    def of(scope: str) -> set[str]:
        bounds = SMALL[machine][scope][0]
        return {action.name for action in actions if action.when is None or action.when(bounds)}

    chosen = list(scopes)
    known = set().union(*map(of, chosen))
    for scope in SMALL[machine]:
        if not of(scope) <= known:
            chosen.append(scope)
            known |= of(scope)
    return tuple(chosen)


def touched(machine: str, scopes: tuple[str, ...]) -> dict[str, tuple[set[str], set[str]]]:
    """Of every action of these scopes: which variables its guard or effects read, and which it sets.

    Read off the form from which code and exports are generated, so over all states and not over those seen.
    """
    found: dict[str, tuple[set[str], set[str]]] = {}
    for scope in scopes_with_every_action(machine, scopes):
        form = scalar_form(MACHINES[machine], SMALL[machine][scope][0])
        for instance in form.instances:
            reads, writes = found.setdefault(instance.action, (set(), set()))
            writes |= {form.elements[position].name for position in instance.assignments}
            reads |= {
                form.elements[place].name for place in _elements([instance.guard, *instance.assignments.values()])
            }
    return found


def _elements(nodes: list[ScalarNode]) -> set[int]:
    """The places of the state that these expressions speak of."""
    seen, found = set(), set()
    while nodes:
        node = nodes.pop()
        if node.number in seen:
            continue
        seen.add(node.number)
        if node.operator == "element":
            found.add(node.value)
        nodes += node.arguments
    return found


def matrix_of(machine: str, scopes: tuple[str, ...], shown: Callable[[str], bool] = lambda name: True) -> str:
    """Actions down, variables across: r for read, s for set."""
    table = touched(machine, scopes)
    known = MACHINES[machine]
    columns = [name for name in known.variables if shown(name) and any(name in r | w for r, w in table.values())]
    head = "".join(f'<th scope="col"><span>{escape(name)}</span></th>' for name in columns)
    rows = []
    for name in (action for action in known.actions if action in table):
        reads, writes = table[name]
        cells = []
        for column in columns:
            mark = "s" if column in writes else "r" if column in reads else ""
            does = {"s": "sets", "r": "reads", "": "leaves"}[mark]
            cells.append(f'<td class="{does}" title="{name} {does} {column}">{mark}</td>')
        rows.append(f'<tr><th scope="row">{escape(name)}</th>{"".join(cells)}</tr>')
    inner = f"<thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="matrix" tabindex="0"><table>{inner}</table></div>'


def actions_of(machine: str) -> str:
    """The actions of a machine: who takes them, whether inside a slot, and what they are in one sentence."""
    lines = ["| action | who | in a slot | what it does |", "|---|---|---|---|"]
    lines += [
        f"| `{action.name}` | {action.who} | {'yes' if action.slot else ''} | {_first(action)} |"
        for action in MACHINES[machine].actions.values()
    ]
    return "\n".join(lines)


def _first(action: Action) -> str:
    return " ".join(action.meaning.split("\n\n")[0].split()).replace("|", "\\|")


def properties_of(machine: str) -> str:
    """The properties of a machine in one sentence each, and the variants that break them."""
    known = MACHINES[machine]
    sentences = {name: found.sentence for name, found in known.properties.items()}
    if known.progress is not None:
        sentences[known.progress.name] = known.progress.sentence
    lines = ["| property | says | broken by |", "|---|---|---|"]
    for name, sentence in sentences.items():
        breakers = ", ".join(f"`{each.name}`" for each in known.variants.values() if each.breaks == name)
        lines.append(f"| `{name}` | {sentence.replace('|', chr(92) + '|')} | {breakers or 'variants of the cut'} |")
    return "\n".join(lines)


def counts() -> str:
    """The pinned sizes of the enumerations by machine and family of scopes."""
    lines = ["| machine | `small` | `medium` | `large` |", "|---|---|---|---|"]
    for name, machine in MACHINES.items():
        cells = []
        for family in ("small", "medium", "large"):
            pins = [pinned for _, pinned in scopes_named(machine, family).values()]
            total = sum(pinned.states for pinned in pins if pinned is not None)
            cells.append(f"{total:,} states")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


#: What a page may ask for, as `<!-- draw: NAME -->`.
DRAWN: Mapping[str, Callable[[], str]] = {
    "life_of_a_prompt": life_of_a_prompt,
    "after_a_crash": after_a_crash,
    "states_of_the_barrier": states_of_the_barrier,
    "order_of_a_save": order_of_a_save,
    "matrix_of_the_barrier": lambda: matrix_of("barrier", ("two_rounds", "children")),
    "matrix_of_the_cut": lambda: matrix_of(
        "cut", SCOPES_OF_A_MATRIX, lambda name: not name.startswith("image_") and not name.endswith("_left")
    ),
    "matrix_of_the_store": lambda: matrix_of("store", tuple(SMALL["store"])[:3]),
    "actions_of_the_barrier": lambda: actions_of("barrier"),
    "actions_of_the_cut": lambda: actions_of("cut"),
    "actions_of_the_store": lambda: actions_of("store"),
    "properties_of_the_barrier": lambda: properties_of("barrier"),
    "properties_of_the_cut": lambda: properties_of("cut"),
    "properties_of_the_store": lambda: properties_of("store"),
    "counts": counts,
}  # fmt: skip
