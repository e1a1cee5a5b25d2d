"""A world whose runs of the controller overlap call by call, as a test says and never by chance.

A run is a handler's invocation on a thread of its own, which stands before each call to the world until it is told to
go on. One that stands for as long as Lambda lets a handler live is killed there, as Lambda does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from dyntrain.controller.contract.errors import ControllerError
from dyntrain.controller.contract.messages import STATUS_TAG
from dyntrain.controller.core.decisions.arrows import Cause
from shaky_world import Crash, ShakyWorld

LIFE_SECONDS = 120.0  # of a handler
WHOLE = 10_000  # calls: to the end
HANG_SECONDS = 60.0  # of the test's own clock


class Run:
    """`act` goes on only in `step`. `failed`: it ended with one of the controller's errors, or died."""

    def __init__(self, world: OverlappingWorld, what: str, act: Callable[[], object]) -> None:
        self.what, self.began = what, world.now
        self.over = self.failed = False
        self._world, self._act = world, act
        self._go, self._stands = threading.Semaphore(0), threading.Semaphore(0)
        self._bomb: BaseException | None = None
        self._defect: BaseException | None = None
        threading.Thread(target=self._run, daemon=True).start()
        self._wait()

    def step(self, calls: int = WHOLE, bomb: BaseException | None = None) -> None:
        """So many calls further, or to its end. `bomb`: the call before which it stands raises that."""
        for _ in range(calls):
            if self.over:
                return
            self._bomb, bomb = bomb, None
            self._go.release()
            self._wait()

    def stand(self) -> None:
        """On its own thread, before each call."""
        self._stands.release()
        self._go.acquire()
        bomb, self._bomb = self._bomb, None
        if bomb is not None:
            raise bomb

    def _wait(self) -> None:
        assert self._stands.acquire(timeout=HANG_SECONDS), f"a {self.what} hangs"
        if self._defect is not None:
            raise self._defect

    def _run(self) -> None:
        self._world.runs[threading.get_ident()] = self
        try:
            self._act()
        except (Crash, ControllerError):
            self.failed = True
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
            self._defect = error
        finally:
            self.over = True
            del self._world.runs[threading.get_ident()]
            self._stands.release()


class OverlappingWorld(ShakyWorld):
    """`tags`: what was written into the status tag of each instance, and when; `causes`: what has happened to it."""

    def __init__(self, *clusters: str, **policy: Any) -> None:
        self.runs: dict[int, Run] = {}
        self.tags: dict[str, list[tuple[float, Any]]] = {}
        self.causes: dict[str, list[tuple[float, Cause]]] = {}
        super().__init__(*clusters, **policy)

    def called(self, name: str, *arguments: str) -> None:
        run = self.runs.get(threading.get_ident())
        if run is not None:
            run.stand()
        super().called(name, *arguments)

    def tagged(self, instance: str, key: str, value: str) -> None:
        super().tagged(instance, key, value)
        if key == STATUS_TAG:
            self.tags.setdefault(instance, []).append((self.now, value))

    def because(self, instance: str, cause: Cause) -> None:
        self.causes.setdefault(instance, []).append((self.now, cause))
