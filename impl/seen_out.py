"""Waiting for something that must not be left alone, whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any


async def seen_out(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until `future` is done, through every cancellation of the caller; the last of these, for it to raise.

    How the future ended is for the caller to ask, and no matter of this: one that was itself cancelled, or failed,
    raises nothing here. Nobody who gives the future up may forget to ask, or asyncio calls its error unseen.
    """
    cancellation = None
    while not future.done():
        try:
            # `wait` and neither `await future`, which a cancellation here would reach, nor `shield`, whose
            # CancelledError may be that of the future as well as the caller's.
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancellation = error
    return cancellation
