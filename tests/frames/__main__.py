"""`python -m tests.frames` plays all scenarios and lists the differences; with `--record`, it replaces the recordings.

Texts for people are listed apart from frames: a change of wording shows as `old -> new`, once for all scenarios that have it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
from collections import Counter

from . import recordings
from .scenario_player import TRANSPORTS, play


def main() -> int:
    """Returns the exit code: 1 if anything differs and was not recorded."""
    parser = argparse.ArgumentParser(prog="python -m tests.frames", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write what comes as what has to come")
    parser.add_argument("--only", default="", help="play, and show, those whose name has this in it")
    parser.add_argument("transports", nargs="*", default=TRANSPORTS, help=", ".join(TRANSPORTS))
    given = parser.parse_args()
    logging.disable()  # tools crash on purpose
    changed: list[str] = []
    words: Counter[tuple[str, str]] = Counter()
    for transport in given.transports:
        begun, spent = time.monotonic(), time.process_time()
        played = asyncio.run(play(transport, given.only))
        took = f"{time.monotonic() - begun:.1f} s, {time.process_time() - spent:.1f} s of this processor's time"
        kept = recordings.read(transport)
        compared: set[str] = {*played} if given.only else {*played, *kept}
        for name in compared:
            new, old = played.get(name), kept.get(name)
            if new is None or old is None or new.frames != old.frames or len(new.texts) != len(old.texts):
                changed.append(name)
            else:
                words.update(pair for pair in zip(old.texts, new.texts, strict=True) if pair[0] != pair[1])
        rows = sum(len(each.frames) for each in played.values())
        print(f"{transport}: {len(played)} scenarios, {rows} frames, {took}")
        if given.record and not given.only:
            recordings.write(transport, played)
        elif given.only:
            for name, record in played.items():
                print("\n  ".join([name, *record.frames, *(f"~ {each}" for each in record.texts)]))
    for name in sorted(changed):
        print(f"frames differ: {name}")
    for (before, after), times in sorted(words.items()):
        print(f"words differ, {times} times: {before} -> {after}")
    return 0 if given.record else int(bool(changed or words))


if __name__ == "__main__":
    raise SystemExit(main())
