"""A stand-in for one rank of a program that goes on in mid-epoch: it says each record that it has trained on.

After `most` records it stays, with what it has read ahead, until it is killed; with 0 it reads the epoch and one more.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from feed_reader import gone_on, named, pipe_mode_dataset


def main() -> None:
    root, name, ranks, record_format, state, out, most = sys.argv[1:8]
    resumed = gone_on(name, int(ranks), json.loads(state), Path(root))
    Path(f"{out}.resumed").write_text(json.dumps(resumed))
    for epoch in (resumed["epoch"], resumed["epoch"] + 1)[: 1 if int(most) else 2]:
        with open(f"{out}.{epoch}", "w") as trained:
            for number, record in enumerate(pipe_mode_dataset(name, epoch, record_format, Path(root)), 1):
                print(json.dumps(named(record)), file=trained, flush=True)
                if number == int(most):
                    time.sleep(1000)
            print(json.dumps("the end"), file=trained, flush=True)


if __name__ == "__main__":
    main()
