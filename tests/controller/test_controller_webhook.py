"""Alarms on their way to a webhook: a real HTTPS server, SNS's own message, and nothing of the secret in any log."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import logging
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from dyntrain.controller.adapters.webhook import HttpsSender, is_public
from dyntrain.controller.contract.errors import Conflict, ControllerError, GiveUp, Misconfigured, RetryLater
from dyntrain.controller.contract.webhook import Webhook
from dyntrain.controller.local.pace import patient
from dyntrain.controller.loops.notify import CLAIM_SECONDS, NotifyPorts, NotifyResult, StoredNotice, notify
from waiting import wait_for

HOST = "hooks.example.org"
SECRET = "/services/T0AAA/B0BBB/verysecret"
ALARM = {
    "AlarmName": "dyntrain-prod-OrphanAlarm-1ABC",
    "AlarmDescription": "An instance of a cluster runs & nobody has wanted it for <orphan_grace_seconds>.",
    "AWSAccountId": "123456789012",
    "NewStateValue": "ALARM",
    "NewStateReason": "Threshold Crossed: 1 datapoint [1.0] was greater than the threshold (0.0).",
    "StateChangeTime": "2026-11-22T10:00:00.000+0000",
    "Region": "EU (Frankfurt)",
    "AlarmArn": "arn:aws:cloudwatch:eu-central-1:123456789012:alarm:dyntrain-prod-OrphanAlarm-1ABC",
    "OldStateValue": "OK",
    "Trigger": {"MetricName": "Orphan", "Namespace": "dyntrain", "Period": 300, "Threshold": 0.0},
}


def delivery(message: object = ALARM, number: int = 1) -> dict[str, Any]:
    """An event as SNS hands it to Lambda."""
    text = message if isinstance(message, str) else json.dumps(message)
    sns = {
        "Type": "Notification",
        "MessageId": f"95df01b4-ee98-5cb9-9903-{number:012d}",
        "TopicArn": "arn:aws:sns:eu-central-1:123456789012:dyntrain-prod-Alarms-1ABC",
        "Subject": 'ALARM: "dyntrain-prod-OrphanAlarm-1ABC" in EU (Frankfurt)',
        "Message": text,
        "Timestamp": "2026-11-22T10:00:01.000Z",
        "SignatureVersion": "1",
        "Signature": "none",
        "MessageAttributes": {},
    }
    subscription = f"{sns['TopicArn']}:21be56ed-a058-49f5-8c98-aedd2564c486"
    return {
        "Records": [{"EventVersion": "1.0", "EventSubscriptionArn": subscription, "EventSource": "aws:sns", "Sns": sns}]
    }


class Receiver(ThreadingHTTPServer):
    """Answers with each of `answers` in turn, the last for ever; `delay` holds its tongue until it is set free."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.answers: list[int] = [200]
        self.delay = threading.Event()
        self.delay.set()
        self.requests: list[tuple[str, str, Any]] = []

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away, or do not trust the certificate, are what is tried here."""


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, self.headers["Host"], body))
        self.server.delay.wait(30)
        answers = self.server.answers
        status = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "https://127.0.0.1:1/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """For HOST alone, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("certificate")
    public, private = folder / "public.pem", folder / "private.pem"
    public.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    return public, context


@dataclass
class Bed:
    """`secret` is what the operator has written; `now` moves when told; `pauses` are not waited for."""

    receiver: Receiver
    authority: Path
    secret: str | None = None
    now: float = 1000.0
    stored: dict[str, StoredNotice] = field(default_factory=dict)
    pauses: list[float] = field(default_factory=list)
    timeout: tuple[float, float] = (10.0, 30.0)
    trusted: bool = True
    before_put: list[Any] = field(default_factory=list)

    def address(self, host: str = HOST) -> str:
        return f"https://{host}:{self.receiver.server_port}{SECRET}"

    def webhook(self) -> str | None:
        return self.secret

    def get(self, message: str) -> StoredNotice | None:
        return self.stored.get(message)

    def put(self, message: str, notice: StoredNotice) -> None:
        if self.before_put:
            self.before_put.pop(0)()
        if (self.stored[message].version if message in self.stored else 0) != notice.version:
            raise Conflict(message)
        self.stored[message] = StoredNotice(notice.state, notice.at, notice.version + 1)

    @property
    def ports(self) -> NotifyPorts:
        sender = HttpsSender(
            lambda address: address == "127.0.0.1",
            lambda host, port: ["127.0.0.1"],
            str(self.authority) if self.trusted else None,
            self.timeout,
            self.pauses.append,
        )
        return NotifyPorts(self, self, sender, lambda: self.now)

    def deliver(self, *more: Any, **options: Any) -> NotifyResult:
        return notify(self.ports, delivery(*more, **options), "prod")

    @property
    def bodies(self) -> list[Any]:
        return [body for _, _, body in self.receiver.requests]


@pytest.fixture
def bed(certificate: tuple[Path, ssl.SSLContext]) -> Iterator[Bed]:
    public, context = certificate
    receiver = Receiver(context)
    thread = threading.Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    bed = Bed(receiver, public)
    bed.secret = bed.address()
    yield bed
    receiver.delay.set()
    receiver.shutdown()
    receiver.server_close()
    thread.join(patient(10))


def test_an_alarm_arrives_as_json_at_the_path_of_the_secret(bed: Bed) -> None:
    assert bed.deliver().sent == 1
    ((path, host, body),) = bed.receiver.requests
    assert (path, host) == (SECRET, f"{HOST}:{bed.receiver.server_port}")
    assert body == {
        "version": 1,
        "id": "95df01b4-ee98-5cb9-9903-000000000001",
        "stage": "prod",
        "subject": "ALARM: Orphan",
        "text": ALARM["AlarmDescription"],
        "metric": "Orphan",
        "region": "EU (Frankfurt)",
        "at": "2026-11-22T10:00:00.000+0000",
    }


def test_slack_gets_one_text_in_which_nothing_is_a_command(bed: Bed) -> None:
    bed.secret = json.dumps({"url": bed.address(), "format": "slack"})
    bed.deliver({**ALARM, "AlarmDescription": "look <!channel> & <https://example.org|here>"})
    assert bed.bodies == [
        {"text": "ALARM: Orphan (prod EU (Frankfurt))\nlook &lt;!channel&gt; &amp; &lt;https://example.org|here&gt;"}
    ]


@pytest.mark.parametrize(
    "text", ["mend it", '"mend it"', "[1]", '{"AlarmName": null}', '{"AlarmName": "a", "Trigger": 7}']
)
def test_whatever_somebody_puts_on_the_topic_is_passed_on_as_it_is(bed: Bed, text: str) -> None:
    assert bed.deliver(text).sent == 1
    assert bed.bodies[0]["subject"]


def test_a_message_that_is_delivered_twice_is_sent_once(bed: Bed) -> None:
    assert [bed.deliver().sent, bed.deliver().sent, bed.deliver(number=2).sent] == [1, 0, 1]
    assert len(bed.bodies) == 2


def test_of_two_deliveries_at_once_one_sends(bed: Bed) -> None:
    """The other one comes while the first has looked and not yet claimed."""
    bed.before_put.append(bed.deliver)
    assert bed.deliver() == NotifyResult(sent=0, repeated=1)
    assert len(bed.bodies) == 1


def test_one_that_died_before_it_had_sent_is_made_good_by_a_later_delivery(bed: Bed) -> None:
    message = delivery()["Records"][0]["Sns"]["MessageId"]
    bed.stored[message] = StoredNotice("claimed", bed.now, 1)
    assert bed.deliver().repeated == 1, "it may still be at it"
    bed.now += CLAIM_SECONDS
    assert bed.deliver().sent == 1
    bed.now += 10 * CLAIM_SECONDS
    assert bed.deliver() == NotifyResult(repeated=1), "it is known as sent, over the claim of the one that died"


def test_a_receiver_that_stumbles_is_asked_again_with_pauses(bed: Bed) -> None:
    bed.receiver.answers = [503, 429, 200]
    assert bed.deliver().sent == 1
    assert (len(bed.bodies), bed.pauses) == (3, [1.0, 2.0])


def test_a_receiver_that_stays_down_is_left_after_three_attempts_and_asked_by_lambdas_next_one(bed: Bed) -> None:
    bed.receiver.answers = [500]
    with pytest.raises(RetryLater, match="HTTP 500"):
        bed.deliver()
    assert len(bed.bodies) == 3
    bed.receiver.answers = [200]
    assert bed.deliver().sent == 1


@pytest.mark.parametrize("status", [302, 404, 403])
def test_what_is_refused_is_not_repeated_and_no_redirect_is_followed(bed: Bed, status: int) -> None:
    bed.receiver.answers = [status]
    with pytest.raises(GiveUp, match=str(status)):
        bed.deliver()
    assert len(bed.bodies) == 1


def test_a_receiver_that_never_answers_costs_its_timeouts_and_no_more(bed: Bed) -> None:
    bed.timeout = (10.0, 0.3)
    bed.receiver.delay.clear()
    with pytest.raises(RetryLater, match="ReadTimeout"):  # of the last attempt; an answer would come in half a minute
        bed.deliver()
    # on a busy machine the sender has given up before the receiver has read
    assert len(wait_for(lambda: bed.bodies if len(bed.bodies) >= 3 else None, 30) or ()) == 3


def test_a_certificate_of_another_name_or_authority_is_not_trusted(bed: Bed) -> None:
    for trusted, host in ((True, "other.example.org"), (False, HOST)):
        bed.trusted, bed.secret = trusted, bed.address(host)
        with pytest.raises(RetryLater, match="SSLError"):
            bed.deliver()
    assert bed.bodies == []


def test_without_a_webhook_nothing_is_sent_and_nothing_remembered(bed: Bed) -> None:
    bed.secret = None
    assert bed.deliver().skipped
    assert bed.stored == {}


def test_the_address_is_in_no_log_and_no_error(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    """Also where libraries log everything, and whatever goes wrong."""
    caplog.set_level(logging.INFO)
    texts = []
    for number, answers in enumerate(([200], [404], [500])):
        bed.receiver.answers = answers
        try:
            bed.deliver(number=number)
        except ControllerError as error:
            texts.append(repr(error))
    bed.receiver.shutdown()
    bed.receiver.server_close()
    with pytest.raises(RetryLater) as gone:
        bed.deliver(number=9)
    for wrong in ("{" + SECRET, f"http://{HOST}{SECRET}", f"https://me:{SECRET[1:]}@{HOST}/", f"https://[{SECRET}"):
        with pytest.raises(Misconfigured) as refused:
            Webhook.of(wrong)
        texts.append(repr(refused.value))
    texts += [repr(gone.value), repr(Webhook.of(bed.address())), caplog.text]
    assert len(texts) == 9
    assert not [text for text in texts if "verysecret" in text]


@pytest.mark.parametrize(
    "text",
    [
        f"http://{HOST}/x", f"ftp://{HOST}/x", HOST, "", "{}", "[]", '{"url": 7}', "https:///x", f"https://a@{HOST}/",
        f"https://{HOST}:99999/", f"https://{HOST}/\r\nHost: other", '{"url": "https://h/", "format": "xml"}',
        '{"url": "https://h/", "to": "me"}',
    ],
)  # fmt: skip
def test_what_is_no_address_of_a_public_https_server_is_refused(text: str) -> None:
    with pytest.raises(Misconfigured):
        Webhook.of(text)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "169.254.169.254", "10.1.2.3", "192.168.0.1", "100.64.0.1", "0.0.0.0", "::1", "fd00:ec2::254",
     "fe80::1", "::ffff:169.254.169.254", "2002:a9fe:a9fe::", "224.0.0.1"],
)  # fmt: skip
def test_a_name_that_leads_into_a_network_of_the_controllers_own_is_refused(address: str) -> None:
    """Lambda's own interface, the metadata service, a VPC: nobody is connected to, also if only one address is such."""
    assert not is_public(address)
    public = str(ipaddress.ip_address("93.184.216.34"))
    assert is_public(public)
    sender = HttpsSender(resolve=lambda host, port: [public, address], pause=lambda seconds: None)
    with pytest.raises(GiveUp, match="not public"):
        sender.post(Webhook.of(f"https://{HOST}/x"), {})
