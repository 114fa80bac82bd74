"""Draws a directed graph as SVG: layers from top to bottom, by distance from the first node.

No tool of its own is needed, neither at build time nor in the reader's browser. Colours are those of the page, so that
a drawing is right in light and in dark. Widths are known because all text has letters of one width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import networkx as nx

from interleavings.report.markup import rendered

TEMPLATES = Path(__file__).parent / "templates"

LETTER, LINE, PADDING = 7.3, 16.0, 10.0
BETWEEN_NODES, BETWEEN_LAYERS = 26.0, 74.0
SWEEPS = 12
#: A wide drawing shrinks with the page down to this many pixels; below, it is scrolled.
SMALLEST = 700.0
Point = tuple[float, float]
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Node:
    """A box with lines of text. `kind` is its class in the style sheet."""

    name: str
    lines: tuple[str, ...]
    kind: str = ""


@dataclass(frozen=True)
class Edge:
    """An arrow with lines of text beside it."""

    source: str
    target: str
    lines: tuple[str, ...] = ()
    kind: str = ""


@dataclass(frozen=True)
class _Placed:
    x: float
    y: float
    width: float
    height: float

    @property
    def box(self) -> Box:
        return (self.x - self.width / 2, self.y - self.height / 2, self.x + self.width / 2, self.y + self.height / 2)


@dataclass(frozen=True)
class _Line:
    """A line of text and where its middle is."""

    x: float
    y: float
    words: str


@dataclass(frozen=True)
class _Box:
    """A node as it is drawn."""

    kind: str
    left: float
    top: float
    width: float
    height: float
    lines: Sequence[_Line]


@dataclass(frozen=True)
class _Arrow:
    """An edge as it is drawn: the `d` of its path, and its label."""

    kind: str
    path: str
    label: Sequence[_Line]


def drawing(title: str, nodes: Sequence[Node], edges: Sequence[Edge], rows: Mapping[str, int] | None = None) -> str:
    """The graph as an SVG element. The first node is the source; `rows` overrides the layer of a node."""
    graph = nx.DiGraph()
    graph.add_nodes_from(node.name for node in nodes)
    graph.add_edges_from((edge.source, edge.target) for edge in edges)
    distances = nx.single_source_shortest_path_length(graph, nodes[0].name)
    layer = {node.name: (rows or {}).get(node.name, distances.get(node.name, 0)) for node in nodes}
    placed = _places(nodes, _ordered(graph, layer))
    taken: list[Box] = [place.box for place in placed.values()]
    drawn = [_edge(edge, placed, layer, taken) for edge in edges]
    boxes = [_node(node, placed[node.name]) for node in nodes]
    left, top = min(box[0] for box in taken) - 16, min(box[1] for box in taken) - 16
    right, bottom = max(box[2] for box in taken) + 16, max(box[3] for box in taken) + 16
    width, height = right - left, bottom - top
    return rendered(
        "drawing.html.jinja",
        TEMPLATES,
        title=title,
        left=left,
        top=top,
        width=width,
        height=height,
        smallest=min(width, SMALLEST),
        edges=drawn,
        nodes=boxes,
    )


def _ordered(graph: nx.DiGraph, layer: Mapping[str, int]) -> list[list[str]]:
    """The nodes of each layer from left to right: each near the middle of its neighbours, by sweeps up and down."""
    layers: list[list[str]] = [[] for _ in range(max(layer.values()) + 1)]
    for name in graph:
        layers[layer[name]].append(name)
    for sweep in range(SWEEPS):
        order = {name: place / max(len(row) - 1, 1) for row in layers for place, name in enumerate(row)}
        for row in layers if sweep % 2 else reversed(layers):
            middle = {}
            for name in row:
                near = [order[other] for other in nx.all_neighbors(graph, name) if layer[other] != layer[name]]
                middle[name] = sum(near) / len(near) if near else order[name]
            row.sort(key=lambda name: middle[name])
            order.update({name: place / max(len(row) - 1, 1) for place, name in enumerate(row)})
    return layers


def _places(nodes: Sequence[Node], layers: Sequence[Sequence[str]]) -> dict[str, _Placed]:
    size = {
        node.name: (max(map(len, node.lines)) * LETTER + 2 * PADDING, len(node.lines) * LINE + 2 * PADDING)
        for node in nodes
    }
    placed: dict[str, _Placed] = {}
    y = 0.0
    for row in layers:
        if not row:
            continue
        height = max(size[name][1] for name in row)
        width = sum(size[name][0] for name in row) + BETWEEN_NODES * (len(row) - 1)
        x = -width / 2
        for name in row:
            placed[name] = _Placed(x + size[name][0] / 2, y + height / 2, *size[name])
            x += size[name][0] + BETWEEN_NODES
        y += height + BETWEEN_LAYERS
    return placed


def _node(node: Node, place: _Placed) -> _Box:
    left, top, _, _ = place.box
    return _Box(node.kind, left, top, place.width, place.height, _text(node.lines, place.x, place.y))


def _text(lines: Sequence[str], x: float, y: float) -> list[_Line]:
    first = y - (len(lines) - 1) * LINE / 2
    return [_Line(x, first + number * LINE, line) for number, line in enumerate(lines)]


def _edge(edge: Edge, placed: Mapping[str, _Placed], layer: Mapping[str, int], taken: list[Box]) -> _Arrow:
    """The path of an edge, and its label where it hides nothing."""
    curve = _curve(placed[edge.source], placed[edge.target], layer[edge.target] - layer[edge.source], taken)
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = curve
    path = f"M{x0:.1f} {y0:.1f}C{x1:.1f} {y1:.1f} {x2:.1f} {y2:.1f} {x3:.1f} {y3:.1f}"
    taken += [(x - 1, y - 1, x + 1, y + 1) for x, y in (_point(curve, t / 10) for t in range(1, 10))][2:7]
    if not edge.lines:
        return _Arrow(edge.kind, path, ())
    width, height = max(map(len, edge.lines)) * LETTER * 0.92 + 6, len(edge.lines) * LINE
    best: tuple[float, Point, Box] | None = None
    for part in (0.5, 0.4, 0.6, 0.3, 0.7, 0.22, 0.78):
        for shift in (0.0, 1.0, -1.0):
            x, y = _point(curve, part)
            x += shift * (width / 2 + 6)
            box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            hidden = sum(_overlap(box, other) for other in taken) + abs(part - 0.5) + abs(shift) * 0.4
            if best is None or hidden < best[0]:
                best = (hidden, (x, y), box)
    assert best is not None
    taken.append(best[2])
    return _Arrow(edge.kind, path, _text(edge.lines, *best[1]))


def _curve(source: _Placed, target: _Placed, down: int, taken: Sequence[Box]) -> tuple[Point, Point, Point, Point]:
    if source is target:
        right, y = source.box[2], source.y
        return (right, y - 8), (right + 46, y - 24), (right + 46, y + 24), (right, y + 8)
    if down == 1:
        start, end = (source.x, source.box[3]), (target.x, target.box[1])
        bend = (end[1] - start[1]) * 0.5
        return start, (start[0], start[1] + bend), (end[0], end[1] - bend), end
    if down == 0:
        sign = 1 if target.x > source.x else -1
        start, end = (source.x, source.box[1]), (target.x, target.box[1])
        lift = min(34.0 + abs(target.x - source.x) * 0.06, 60.0)
        return start, (start[0] + sign * 20, start[1] - lift), (end[0] - sign * 20, end[1] - lift), end
    # Upwards, or over a layer: outside, past whatever lies between.
    side = 1 if target.x + source.x / 4 >= 0 else -1
    start = (source.box[2] if side > 0 else source.box[0], source.y + (6 if down > 0 else -6))
    end = (target.box[2] if side > 0 else target.box[0], target.y + (-6 if down > 0 else 6))
    between = [
        box
        for box in taken
        if box[3] - box[1] > 2 * PADDING
        and min(source.y, target.y) - 1 < (box[1] + box[3]) / 2 < max(source.y, target.y) + 1
    ]
    edge = max([side * box[2 if side > 0 else 0] for box in between], default=0.0)
    far = side * (edge + 30 + 12 * abs(down)) * 1.12
    return start, (far, start[1]), (far, end[1]), end


def _point(curve: Sequence[Point], t: float) -> Point:
    points = list(curve)
    while len(points) > 1:
        points = [((1 - t) * a[0] + t * b[0], (1 - t) * a[1] + t * b[1]) for a, b in pairwise(points)]
    return points[0]


def _overlap(one: Box, other: Box) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return width * height if width > 0 and height > 0 else 0.0
