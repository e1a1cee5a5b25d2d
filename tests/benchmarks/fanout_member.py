"""One member of the fan-out benchmark, in a network namespace of its own; without MXNet, for the transfer alone.

fanout_member.py source HOST BYTES ENCRYPTED|CLEAR         prints its port, hands out until its input ends
fanout_member.py member HOST BYTES ENCRYPTED|CLEAR         prints its port, then for the line "HOST:PORT,HOST:PORT..."
                                                           fetches from these, and prints seconds and CPU seconds
"""

from __future__ import annotations

import os
import sys
import time

from dyntrain.training.worker.state.block import allocate, checksum
from dyntrain.training.worker.transfer.feed import Feed
from dyntrain.training.worker.transfer.fetching import FetchRequest, fetch
from dyntrain.training.worker.transfer.server import StateServer

GENERATION, TOKEN, LONGEST = 1, "of this benchmark", 600.0


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main(role: str, host: str, size: int, clear: bool) -> None:
    server = StateServer(host)
    server.expect(GENERATION, TOKEN, clear)
    if role == "source":
        block = allocate(size)
        block[:] = os.urandom(size)
        feed = Feed.whole(block, host)
        server.offer(GENERATION, feed)
        feed.finish(checksum(block).hex())
    say(server.port)
    for line in sys.stdin:
        sources = [(each.split(":")[0], int(each.split(":")[1])) for each in line.strip().split(",")]
        room = allocate(size)
        room[:] = bytes(size)  # writes to all pages, as the first write to memory takes extra time
        request = FetchRequest(
            GENERATION,
            TOKEN,
            sources,
            lambda size, room=room: room,  # type: ignore[misc]
            lambda feed: server.offer(GENERATION, feed),
            clear=clear,
        )
        began, used = time.monotonic(), time.process_time()
        fetch(request, LONGEST)
        say(f"{time.monotonic() - began:.4f}", f"{time.process_time() - used:.4f}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "clear")
