"""The names of `interleavings.report` that others use, each written down once."""

from .describe import describe_choice as describe_choice
from .page import Page as Page
from .page import PageStep as PageStep
from .page import Standing as Standing
from .page import html_of as html_of
from .source_text import SourceRefused as SourceRefused
from .source_text import checked as checked
from .source_text import literal as literal
from .source_text import words as words
