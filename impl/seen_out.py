"""Waiting for something that must not be left alone, whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any


async def seen_out(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until `future` is done, through every cancellation of the caller; the last of these, for it to raise."""
    cancellation = None
    while not future.done():
        try:
            # `wait` and not `await future`: a cancellation here must not reach it.
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancellation = error
    return cancellation
