"""The embedded cloud's HTTP endpoint: a WSGI application that adds missing AWS behaviour to the application of the AWS
emulator moto.

For each API call, the endpoint checks AWS's limits before the embedded cloud or moto answers the call. After an
accepted API call, the endpoint applies the call's effects, such as booting instances and publishing events. The
endpoint holds the account's lock during each API call, except calls to SQS, S3 and CloudWatch Logs, which may take
long.
"""

from __future__ import annotations

import io
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from dyntrain.controller.local.account import Account
from dyntrain.controller.local.calls import ApiAnswer, ApiCall, encode_form, parse_call, refusal_answer
from dyntrain.controller.local.cloud import limits
from dyntrain.controller.local.cloud.actions import answer_own_action
from dyntrain.controller.local.cloud.consequences import CallConsequences
from dyntrain.controller.local.cloud.groups import AutoScalingGroups
from dyntrain.controller.local.cloud.launches import LaunchFeatures
from dyntrain.controller.local.cloud.past import PastStates
from dyntrain.controller.local.cloud.reservations import Reservations
from dyntrain.controller.local.cloud.table_calls import table_answer
from dyntrain.controller.local.disturbance import Disturbance
from dyntrain.controller.local.errors import ApiError
from dyntrain.controller.local.trace import CloudTrace
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

StartResponse = Callable[..., Any]
Environ = dict[str, Any]

UNLOCKED_SERVICES = frozenset({"sqs", "s3", "logs"})


class Endpoint:
    """The WSGI application. `calls` counts the received API calls by (service, action), without calls to SQS, S3 and
    CloudWatch Logs.
    """

    def __init__(
        self,
        account: Account,
        groups: AutoScalingGroups,
        reservations: Reservations,
        consequences: CallConsequences,
        trace: CloudTrace,
        disturbance: Disturbance,
        past: PastStates,
    ) -> None:
        self._account = account
        self._reservations = reservations
        self._groups = groups
        self._consequences = consequences
        self._trace = trace
        self._disturbance = disturbance
        self._launches = LaunchFeatures()
        self._past = past
        self._moto = DomainDispatcherApplication(create_backend_app)
        self.calls: Counter[tuple[str, str]] = Counter()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        body_length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(body_length) if body_length else b""
        target_header = environ.get("HTTP_X_AMZ_TARGET", "")
        call = parse_call(environ.get("HTTP_AUTHORIZATION", ""), target_header, environ.get("CONTENT_TYPE", ""), body)
        try:
            answer = self._answer_call(call, environ, body)
        except ApiError as refusal:
            answer = refusal_answer(call, refusal)
        except NotImplementedError:
            operation_name = f"{call.service}:{call.action}"
            answer = refusal_answer(
                call, ApiError("InvalidAction", f"the embedded cloud does not support {operation_name}", 400)
            )
        except Exception:  # noqa: BLE001 - moto may raise anything; the client then gets AWS's internal error
            self._trace.write_error(traceback.format_exc())
            answer = refusal_answer(
                call,
                ApiError(
                    "InternalFailure",
                    f"the embedded cloud failed at {call.service}:{call.action}; see {self._trace.path}",
                    500,
                ),
            )
        headers = [("Content-Type", answer.content_type), ("Content-Length", str(len(answer.body))), *answer.headers]
        start_response(f"{answer.status} {'OK' if answer.status < 400 else 'Error'}", headers)
        return [answer.body]

    def _answer_call(self, call: ApiCall, environ: Environ, body: bytes) -> ApiAnswer:
        if call.service in UNLOCKED_SERVICES:
            return self._ask_moto(environ, body)
        with self._account.lock:
            self.calls[call.service, call.action] += 1
            if call.region and call.region != self._account.region:
                return self._ask_moto(environ, body)
            self._disturbance.raise_if_throttled(call)
            limits.check_call(self._account, call)
            answer = (
                answer_own_action(self._groups, call)
                or self._reservations.answer_call(call)
                or self._launches.answer_call(call)
            )
            if answer is not None:
                return answer
            state_before = self._consequences.prepare_call(call)
            with self._past.show_past_state(call, self._disturbance.extra_age_seconds()):
                answer = table_answer(self._account, call) or self._ask_moto(
                    environ, body if state_before.form is None else encode_form(state_before.form)
                )
            if answer.status >= 300:
                return answer
            answer = self._consequences.apply_consequences(call, state_before, answer)
            if call.action == "RunInstances":
                self._launches.remember_launch(call, answer)
            return answer

    def _ask_moto(self, environ: Environ, body: bytes) -> ApiAnswer:
        moto_answer: list[Any] = []

        def start_moto_response(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
            moto_answer[:] = [int(status.split()[0]), headers]

        moto_environ = {
            **environ,
            "wsgi.input": io.BytesIO(body),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_X_MOTO_ACCOUNT_ID": self._account.number,
        }
        chunks = self._moto(moto_environ, start_moto_response)
        try:
            body_bytes = b"".join(chunks)
        finally:
            close_chunks = getattr(chunks, "close", None)
            if close_chunks is not None:
                close_chunks()
        status, headers = moto_answer
        content_type = next((value for name, value in headers if name.lower() == "content-type"), "text/xml")
        kept_headers = tuple(
            (name, value) for name, value in headers if name.lower() not in ("content-type", "content-length")
        )
        return ApiAnswer(status, content_type, body_bytes, kept_headers)
