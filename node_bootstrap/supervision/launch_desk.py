"""Passes the launch requests of users on a base node to the coordinator, and returns the coordinator's answers.

Only the socket's owner and the group of the job's user may use the socket. All users who may log in are in the group of
the job's user. Users who may log in can run any program as the job's user anyway, since they may change the script that
every node runs.
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
from dyntrain.training.protocol.launch_desk import (
    ANSWER_SECONDS,
    MAX_LINE,
    QUESTION_ADAPTER,
    LaunchQuestion,
    Reply,
    short_path,
)
from dyntrain.training.protocol.node_messages import EndRequest, Launch, LaunchAnswer, LaunchRequest
from dyntrain.training.protocol.wire import FromNode
from dyntrain.training.timeouts import timeout
from pydantic import ValidationError

READ_SECONDS = 10.0  # time limit for one line
NO_COORDINATOR = "this node has no connection to the coordinator now; `dyntrain status` shows the state of the nodes"
RESERVED_PREFIX = "DYNTRAIN_"  # variables with this prefix belong to the program
log = logging.getLogger(__name__)


def working_directory_of(directory: str, mount: str) -> str:
    """Return the working directory of a job launched in `directory`.

    If `directory` is not on the shared volume, the job's working directory is `mount`.
    """
    path = Path(os.path.normpath(directory))
    return str(path) if path.is_absolute() and path.is_relative_to(mount) else mount


class LaunchDesk:
    """Server that receives launch requests over a Unix socket.

    `send` sends a message to the coordinator, and returns False without a connection. The socket's owner and the group
    with the id `group` may use the socket. `worker_log` is the log file of the node's worker.
    """

    def __init__(
        self,
        path: Path,
        group: int,
        cluster: str,
        mount: str,
        worker_log: Path,
        send: Callable[[FromNode], bool],
    ) -> None:
        self._path, self._group, self._cluster, self._mount = path, group, cluster, mount
        self._worker_log, self._send = worker_log, send
        self._waiting: dict[str, asyncio.Future[LaunchAnswer]] = {}

    def on_answer(self, answer: LaunchAnswer) -> None:
        """Pass the coordinator's answer to the request that waits for it."""
        answer_future = self._waiting.get(answer.request)
        if answer_future is not None and not answer_future.done():
            answer_future.set_result(answer)

    def on_disconnect(self) -> None:
        """Refuse all waiting launch requests, since the connection to the coordinator is lost.

        A user may repeat a refused request, since the coordinator starts only one job for repeated requests.
        """
        for request_id in list(self._waiting):
            self.on_answer(LaunchAnswer(request=request_id, job="", refused=NO_COORDINATOR, passing=True))

    async def run(self) -> None:
        """Serve launch requests until cancelled; if the socket cannot be made, log an error and return."""
        try:
            listening_socket = self._listen()
        except OSError as error:
            log.error("nothing can be launched on this node", extra={"reason": str(error)})
            return
        server = await asyncio.start_unix_server(self._serve, sock=listening_socket, limit=MAX_LINE)
        try:
            async with server:
                await server.serve_forever()
        finally:
            self._path.unlink(missing_ok=True)

    def _listen(self) -> socket.socket:
        """Make the socket for launch requests; users without permission can never connect, even while it is made.

        Raises OSError.
        """
        self._path.unlink(missing_ok=True)
        listening_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        earlier_umask = os.umask(0o177)
        try:
            with short_path(self._path) as socket_path:
                listening_socket.bind(socket_path)
            os.chown(self._path, -1, self._group)
            os.chmod(self._path, 0o660)
        except OSError:
            listening_socket.close()
            raise
        finally:
            os.umask(earlier_umask)
        return listening_socket

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            try:
                async with timeout(READ_SECONDS):
                    line = await reader.readline()
                reply = await self._answer_request(line)
            except (ValueError, TimeoutError):  # the line is too long or incomplete
                reply = Reply(refused="the node did not understand the request: is dyntrain here of another version?")
            writer.write(reply.model_dump_json().encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _answer_request(self, line: bytes) -> Reply:
        try:
            question = QUESTION_ADAPTER.validate_json(line)
        except ValidationError:
            return Reply(refused="the node did not understand the request: is dyntrain here of another version?")
        if not isinstance(question, LaunchQuestion):
            return self._reply_to_person(
                await self._ask_coordinator(question.request, EndRequest(request=question.request)),
                "",
            )
        if refusal := _refuse_reserved_names(question.environment):
            return Reply(refused=refusal)
        working_directory = working_directory_of(question.directory, self._mount)
        launch = Launch(
            request=question.request,
            command=question.command,
            directory=working_directory,
            environment=dict(question.environment),
            dt_scripts=question.dt_scripts,
        )
        log.info("a person launches", extra={"request": question.request, "directory": working_directory})
        return self._reply_to_person(
            await self._ask_coordinator(question.request, LaunchRequest(launch=launch)), working_directory
        )

    async def _ask_coordinator(self, request: str, message: FromNode) -> LaunchAnswer:
        """Send a message to the coordinator and return its answer, or a refusal if no answer arrives."""
        answer_future: asyncio.Future[LaunchAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[request] = answer_future
        try:
            if not self._send(message):
                return LaunchAnswer(request=request, job="", refused=NO_COORDINATOR, passing=True)
            async with timeout(ANSWER_SECONDS):
                return await answer_future
        except TimeoutError:
            refusal = (
                f"the coordinator did not answer within {ANSWER_SECONDS:g} s; repeat the command: it launches one job"
            )
            return LaunchAnswer(request=request, job="", refused=refusal)
        finally:
            self._waiting.pop(request, None)

    def _reply_to_person(self, answer: LaunchAnswer, directory: str) -> Reply:
        if answer.refused:
            return Reply(refused=answer.refused, passing=answer.passing)
        events_file = JobFolder.of(Path(self._mount), self._cluster, answer.job).events
        return Reply(job=answer.job, directory=directory, events=str(events_file), log=str(self._worker_log))


def _refuse_reserved_names(environment: Mapping[str, str]) -> str:
    if reserved_names := sorted(name for name in environment if name.startswith(RESERVED_PREFIX)):
        return f"{', '.join(reserved_names)} cannot be set: dyntrain uses the names that begin with {RESERVED_PREFIX}"
    return ""
