"""Takes what people launch on a base node to the coordinator, and its answer back to their terminal.

The socket is the owner's and the job's group's: whoever may log in is in that group, and could as well change the
script on the volume, which every node runs as the same user.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from dyntrain.training.layout import JobFolder
from dyntrain.training.protocol.launch_desk import ANSWER_SECONDS, ASK, MAX_LINE, Reply, ToLaunch, reachable
from dyntrain.training.protocol.node_messages import EndRequest, Launch, LaunchAnswer, LaunchRequest
from dyntrain.training.protocol.wire import FromNode
from dyntrain.training.timeouts import timeout
from pydantic import ValidationError

READ_SECONDS = 10.0  # for a line that is being written
AWAY = "this node has no connection to the coordinator now; `dyntrain status` tells how far the nodes are"
OURS = "DYNTRAIN_"  # how variables begin that are the program's own
log = logging.getLogger(__name__)


def place_of(directory: str, mount: str) -> str:
    """Where a job runs that was launched in `directory`: all nodes must have it, so elsewhere than on the volume it is
    the volume.
    """
    path = Path(os.path.normpath(directory))
    return str(path) if path.is_absolute() and path.is_relative_to(mount) else mount


class LaunchDesk:
    """`tell` sends to the coordinator and is False when nobody listens; `group` may use the socket besides the owner.
    `worker_log` is where the node's worker writes.
    """

    def __init__(
        self,
        path: Path,
        group: int,
        cluster: str,
        mount: str,
        worker_log: Path,
        tell: Callable[[FromNode], bool],
    ) -> None:
        self._path, self._group, self._cluster, self._mount = path, group, cluster, mount
        self._worker_log, self._tell = worker_log, tell
        self._waiting: dict[str, asyncio.Future[LaunchAnswer]] = {}

    def answered(self, answer: LaunchAnswer) -> None:
        future = self._waiting.get(answer.request)
        if future is not None and not future.done():
            future.set_result(answer)

    def lost(self) -> None:
        """The connection is gone, and with it whoever would have answered. Asked again, it is launched once."""
        for request in list(self._waiting):
            self.answered(LaunchAnswer(request=request, job="", refused=AWAY, passing=True))

    async def run(self) -> None:
        """Until cancelled. A node whose socket cannot be made does without."""
        try:
            listening = self._listen()
        except OSError as error:
            log.error("nothing can be launched on this node", extra={"reason": str(error)})
            return
        server = await asyncio.start_unix_server(self._serve, sock=listening, limit=MAX_LINE)
        try:
            async with server:
                await server.serve_forever()
        finally:
            self._path.unlink(missing_ok=True)

    def _listen(self) -> socket.socket:
        """Nobody else can connect at any moment. Raises OSError."""
        self._path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        before = os.umask(0o177)
        try:
            with reachable(self._path) as name:
                listening.bind(name)
            os.chown(self._path, -1, self._group)
            os.chmod(self._path, 0o660)
        except OSError:
            listening.close()
            raise
        finally:
            os.umask(before)
        return listening

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            try:
                async with timeout(READ_SECONDS):
                    line = await reader.readline()
                reply = await self._answer(line)
            except (ValueError, TimeoutError):  # too long, or never a whole line
                reply = Reply(refused="that was not understood: is dyntrain here of another version than the node's?")
            writer.write(reply.model_dump_json().encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _answer(self, line: bytes) -> Reply:
        try:
            asked = ASK.validate_json(line)
        except ValidationError:
            return Reply(refused="that was not understood: is dyntrain here of another version than the node's?")
        if not isinstance(asked, ToLaunch):
            return self._reply(await self._ask(asked.request, EndRequest(request=asked.request)), "")
        if refused := _refusal(asked.environment):
            return Reply(refused=refused)
        place = place_of(asked.directory, self._mount)
        launch = Launch(
            request=asked.request,
            command=asked.command,
            directory=place,
            environment=dict(asked.environment),
            dt_scripts=asked.dt_scripts,
        )
        log.info("a person launches", extra={"request": asked.request, "directory": place})
        return self._reply(await self._ask(asked.request, LaunchRequest(launch=launch)), place)

    async def _ask(self, request: str, message: FromNode) -> LaunchAnswer:
        """A refusal of our own where the coordinator says nothing."""
        future: asyncio.Future[LaunchAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[request] = future
        try:
            if not self._tell(message):
                return LaunchAnswer(request=request, job="", refused=AWAY, passing=True)
            async with timeout(ANSWER_SECONDS):
                return await future
        except TimeoutError:
            why = f"the coordinator did not answer within {ANSWER_SECONDS:g} s; typed again, it is launched once"
            return LaunchAnswer(request=request, job="", refused=why)
        finally:
            self._waiting.pop(request, None)

    def _reply(self, answer: LaunchAnswer, directory: str) -> Reply:
        if answer.refused:
            return Reply(refused=answer.refused, passing=answer.passing)
        events = JobFolder.of(Path(self._mount), self._cluster, answer.job).events
        return Reply(job=answer.job, directory=directory, events=str(events), log=str(self._worker_log))


def _refusal(environment: Mapping[str, str]) -> str:
    if wrong := sorted(name for name in environment if name.startswith(OURS)):
        return f"{', '.join(wrong)}: variables of that name are dyntrain's own"
    return ""
