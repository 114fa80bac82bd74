"""The names of `impl.checkpoint` that others use, each written down once."""

from .artifacts import write_artifacts as write_artifacts
from .capture import Anchor as Anchor
from .capture import Captured as Captured
from .capture import read_cut as read_cut
from .checkpointer import Checkpointer as Checkpointer
from .checks import CHECKS as CHECKS
from .checks import Checked as Checked
from .checks import first_problem as first_problem
from .ledger_documents import accounts_document as accounts_document
from .ledger_documents import ledger_document as ledger_document
from .ownership import EXAMPLES as EXAMPLES
from .ownership import HandedOut as HandedOut
from .ownership import Ownership as Ownership
from .ownership import Span as Span
from .ownership import balance as balance
from .pending import CheckpointInfo as CheckpointInfo
from .pending import PendingSave as PendingSave
from .pending import SnapshotSkipped as SnapshotSkipped
from .restoring import Plan as Plan
from .restoring import read_documents as read_documents
from .save_log import SaveLog as SaveLog
from .validation import Documents as Documents
from .writer_thread import WriterThread as WriterThread
