"""Many cases in few forked children, each end still that of one case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zoo.forkserver import ForkServer

BATCH = 15


def try_all(server: ForkServer, template: str, place: Path, cases: Sequence[Any]) -> list[Any]:
    """Every case with how it ended; see ``trial.try_batch``.

    Where a child ends before its batch does, the case that it died of is tried by itself, and the
    others go on in a new one.
    """
    found: list[Any] = []
    waiting = [cases[start : start + BATCH] for start in range(0, len(cases), BATCH)]
    while waiting:
        requests = []
        for number, batch in enumerate(waiting):
            home = place / str(number)
            home.mkdir(parents=True)
            requests.append(
                ("attacks.trial:try_batch", template, str(home), batch, str(home / "progress"))
            )
        outcomes = server.run_many(requests, workers=2, timeout=120)
        again = []
        for batch, (_, _, home, _, progress), outcome in zip(
            waiting, requests, outcomes, strict=True
        ):
            lines = Path(progress).read_text().splitlines() if Path(progress).exists() else []
            found += zip(batch, map(json.loads, lines), strict=False)
            rest = batch[len(lines) :]
            if rest and len(batch) == 1:
                ended = "hang" if outcome.timed_out else "abort"
                found.append((batch[0], {"ended": ended, "reason": "", "faults": [str(outcome)]}))
            elif rest:
                again += [[rest[0]], *([rest[1:]] if rest[1:] else [])]
            Path(home).rename(f"{home}-done-{len(found)}")
        waiting = again
    return found
