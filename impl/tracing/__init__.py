"""Traces of a run as JSON lines: the tracer that writes them, the reader, and the schema that both keep to."""

from .jsonl_tracer import JsonlTracer
from .reader import TraceLine, read_trace, read_traces
from .schema import FIELDS as FIELDS
from .schema import FIRST_BYTES as FIRST_BYTES
from .schema import SCHEMA, VERSION, End, Event, Gap, Header, Torn

__all__ = [
    "SCHEMA", "VERSION", "End", "Event", "Gap", "Header", "JsonlTracer", "Torn", "TraceLine", "read_trace",
    "read_traces",
]  # fmt: skip
