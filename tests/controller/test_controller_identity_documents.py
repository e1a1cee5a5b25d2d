"""Signed instance identity documents: a node must not be able to speak for another, and no input may break the
handler.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.session import Session
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from dyntrain.controller.contract import region_keys
from dyntrain.controller.contract.errors import Misconfigured
from dyntrain.controller.contract.instance_identity import Verification, judge, parse_keys
from dyntrain.controller.contract.messages import (
    BASE_TAG,
    COORDINATOR_SOURCE,
    NODE_SOURCE,
    NODE_TYPE_TAG,
    OWNER_TAG,
    NodeConfig,
    SignedDocument,
    source_of,
)
from dyntrain.controller.contract.region_keys import _KEY_BY_REGIONS as SHIPPED
from dyntrain.controller.contract.region_keys import identity_setting_kind, keys_text, trusted_keys, unverified_cause
from dyntrain.controller.contract.settings import Settings
from dyntrain.controller.core.records.facts import NodeFacts, TagsEvent
from dyntrain.controller.local.machines.identity import InstanceFacts, Signer, identity_document
from dyntrain.controller.loops.intake import merge, take_in
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.node_bootstrap.supervision.master import identity_keys
from fakes import ELASTIC, World
from hypothesis import given
from hypothesis import strategies as st

INSTANCE, OTHER = "i-0123456789abcdef0", "i-0fedcba9876543210"
ADDRESS, ACCOUNT = "10.0.0.7", "123456789012"
FACTS = InstanceFacts(INSTANCE, "ami-1", "c5.large", ADDRESS, "us-east-1a", "us-east-1", ACCOUNT, 0.0, None)
# as AWS signs
SIGNER, STRANGER = Signer(), Signer(rsa.generate_private_key(public_exponent=65537, key_size=1024))  # noqa: S505
KEYS = parse_keys(SIGNER.public_key)
MOST_REGIONS = "8a61ba393a4aa067e73b9b5e75851ea4345aa5e6dab02538e8c1acd435b1f93f"


def signed(facts: InstanceFacts = FACTS, signer: Signer = SIGNER) -> SignedDocument:
    text = identity_document(facts)
    return SignedDocument(document=text, signature=signer.sign(text))


def by_the_library(text: str, signature: bytes) -> bool:
    try:
        SIGNER.key.public_key().verify(signature, text.encode(), padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        return False
    return True


@given(st.text(max_size=200), st.none() | st.tuples(st.integers(0, 255), st.integers(1, 255)), st.integers(-2, 2))
def test_signatures_are_judged_as_the_cryptography_library_judges_them(
    text: str, flip: tuple[int, int] | None, longer: int
) -> None:
    """Ours is written by hand: one forged signature that it takes is one node that can have another terminated."""
    signature = bytearray(base64.b64decode(SIGNER.sign(text)))
    if flip is not None:
        signature[flip[0]] ^= flip[1]
    changed = bytes(signature)[: len(signature) + min(0, longer)] + b"\0" * max(0, longer)
    verdict = judge(
        SignedDocument(document=text, signature=base64.b64encode(changed).decode()), INSTANCE, ADDRESS, KEYS
    )
    assert (verdict is not Verification.FORGED) == by_the_library(text, changed)


@pytest.mark.parametrize(
    "front",
    [b"\x00\x01" + b"\xff" * 8 + b"\x00" * 195, b"\x00\x02" + b"\xff" * 203, b"\x00\x01" + b"\xff" * 202 + b"\x01"],
)
def test_a_signature_must_open_to_the_whole_block(front: bytes) -> None:
    """Verifiers that only looked for the digest could be fooled without the key (CVE-2006-4339)."""
    numbers, text = SIGNER.key.private_numbers(), identity_document(FACTS)
    good = pow(
        int.from_bytes(base64.b64decode(SIGNER.sign(text))), numbers.public_numbers.e, numbers.public_numbers.n
    ).to_bytes(256)
    forged = pow(int.from_bytes(front + good[len(front) :]), numbers.d, numbers.public_numbers.n).to_bytes(256)
    assert (
        len(front),
        judge(SignedDocument(document=text, signature=base64.b64encode(forged).decode()), INSTANCE, ADDRESS, KEYS),
    ) == (
        205,
        Verification.FORGED,
    )


def test_a_signature_has_the_length_of_its_key() -> None:
    """As RFC 8017 asks; otherwise one signature has many forms."""
    text = identity_document(FACTS)
    longer = base64.b64encode(b"\0" + base64.b64decode(SIGNER.sign(text))).decode()
    assert judge(SignedDocument(document=text, signature=longer), INSTANCE, ADDRESS, KEYS) is Verification.FORGED


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_document_and_signature_get_a_verdict(text: str, signature: str) -> None:
    assert judge(SignedDocument(document=text, signature=signature), INSTANCE, ADDRESS, KEYS) is Verification.FORGED


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    )
)
def test_a_signed_document_of_any_form_gets_a_verdict(content: Any) -> None:
    text = json.dumps(content)
    assert (
        judge(SignedDocument(document=text, signature=SIGNER.sign(text)), INSTANCE, ADDRESS, KEYS)
        is Verification.UNREADABLE
    )


@pytest.mark.parametrize(
    ("identity", "verdict"),
    [
        (signed(), Verification.GENUINE),
        (None, Verification.ABSENT),
        (signed(signer=STRANGER), Verification.FORGED),
        (
            signed().model_copy(update={"document": identity_document(replace(FACTS, instance_id=OTHER))}),
            Verification.FORGED,
        ),
        (signed(replace(FACTS, instance_id=OTHER)), Verification.OTHER_INSTANCE),
        (signed(replace(FACTS, address="10.0.0.8")), Verification.OTHER_ADDRESS),
        (signed(replace(FACTS, account="999999999999")), Verification.OTHER_ACCOUNT),
    ],
)
def test_n6_a_report_counts_only_for_the_instance_that_signed_it(
    identity: SignedDocument | None, verdict: Verification
) -> None:
    """The same for a node that shows a document of its own and speaks for another: nothing is written, and the reason
    names no secret.
    """
    assert judge(identity, INSTANCE, ADDRESS, KEYS, ACCOUNT) is verdict
    aws = World()
    report = aws.report(INSTANCE, identity=identity and identity.model_dump()) | {"account": ACCOUNT}
    outcome = take_in(aws.ports, report, ELASTIC, KEYS)
    assert (outcome.kind, aws.ports.nodes.get(INSTANCE) is not None) == (
        ("applied", True) if verdict is Verification.GENUINE else ("quarantined", False)
    )
    assert verdict is Verification.GENUINE or verdict.value in outcome.reason
    assert identity is None or identity.signature not in outcome.reason


def finished(aws: World, identity: SignedDocument | None, **more: Any) -> dict[str, Any]:
    """The report that ends a job, and with it all its elastic nodes."""
    who = {"instance_id": INSTANCE, "private_ip": ADDRESS, "identity": identity and identity.model_dump()}
    return aws.job_event(**{"state": "finished", **who, **more}) | {"account": ACCOUNT}


@pytest.mark.parametrize("identity", [None, signed(signer=STRANGER), signed(replace(FACTS, instance_id=OTHER))])
def test_a_forged_report_that_the_job_has_finished_is_refused(identity: SignedDocument | None) -> None:
    aws = World()
    outcome = take_in(aws.ports, finished(aws, identity), ELASTIC, KEYS)
    assert (outcome.kind, aws.ports.jobs.get("demo")[0]) == ("quarantined", None)


def test_a_job_is_spoken_for_by_the_master_and_then_by_the_node_that_is_nominated() -> None:
    """Every other node of the cluster has a genuine document too."""
    aws = World()
    strange = take_in(aws.ports, finished(aws, signed()), ELASTIC, KEYS)
    master = {OWNER_TAG: "demo", BASE_TAG: "true", NODE_TYPE_TAG: "Master"}

    def tagged(tags: dict[str, str], version: int) -> None:
        facts = NodeFacts(instance=INSTANCE, tags_event=TagsEvent(version=version, at=aws.now + version, tags=tags))
        merge(aws.ports, facts, wake=False)

    tagged({**master, NODE_TYPE_TAG: "Worker"}, 1)
    worker = take_in(aws.ports, finished(aws, signed()), ELASTIC, KEYS)
    tagged({**master, OWNER_TAG: "other"}, 2)
    foreign = take_in(aws.ports, finished(aws, signed()), ELASTIC, KEYS)
    tagged(master, 3)
    running = take_in(aws.ports, finished(aws, signed(), state="running"), ELASTIC, KEYS)
    stored = aws.ports.clusters.get("demo")
    membership = stored.membership.model_copy(update={"coordinator": OTHER, "term": 1, "revision": 1})
    aws.ports.clusters.put("demo", replace(stored, membership=membership))
    # it still runs the job, and was only silent: without its word the job would count as dead
    nominated = take_in(aws.ports, finished(aws, signed(), state="running", sequence=7), ELASTIC, KEYS)
    known, version = aws.ports.jobs.get("demo")
    assert known is not None
    assert (known.report.state, known.report.identity) == ("running", None), "what proves the sender is kept nowhere"
    successor = known.report.model_copy(update={"instance_id": OTHER})
    aws.ports.jobs.put("demo", known.model_copy(update={"report": successor}), version, wake=False)
    replaced = take_in(aws.ports, finished(aws, signed(), sequence=8), ELASTIC, KEYS)
    assert [outcome.kind for outcome in (strange, worker, foreign, running, nominated, replaced)] == [
        *("ignored", "ignored", "ignored", "applied", "applied", "ignored")
    ]


@pytest.mark.parametrize("more", [{"started_at": 9e15}, {"sequence": 9 * 10**15}])
def test_a_report_from_the_future_would_outrank_all_others_and_is_refused(more: dict[str, Any]) -> None:
    aws = World()
    outcome = take_in(aws.ports, aws.job_event(state="finished", **more), ELASTIC)
    assert (outcome.kind, aws.ports.jobs.get("demo")[0]) == ("quarantined", None)


def test_a_node_whose_role_speaks_for_its_cluster_cannot_speak_for_another() -> None:
    """IAM lets its role send under its own cluster's name only, and the name has to be that of the report."""
    aws = World("demo", "other")
    outcomes = {}
    for event in (aws.report(INSTANCE, cluster="other"), aws.job_event(state="finished", cluster="other")):
        for cluster in ("demo", "other"):
            outcome = take_in(aws.ports, event | {"source": source_of(event["source"], cluster)}, ELASTIC)
            outcomes[event["source"], cluster] = outcome.kind
    assert outcomes == {
        (NODE_SOURCE, "demo"): "quarantined",
        (NODE_SOURCE, "other"): "applied",
        (COORDINATOR_SOURCE, "demo"): "quarantined",
        (COORDINATOR_SOURCE, "other"): "applied",
    }


def test_events_of_aws_need_no_identity_document() -> None:
    """Only what a node says of itself is doubted: EventBridge lets nobody else use the sources that begin with aws."""
    aws = World()
    outcome = take_in(aws.ports, aws.state_event(INSTANCE, "running"), ELASTIC, KEYS)
    assert outcome.kind == "applied"


def test_several_keys_are_taken_with_or_without_their_frame(tmp_path: Path) -> None:
    """As `openssl x509 -pubkey -noout` prints them, and as they fit into one line of an environment variable; regions
    renew their certificates.
    """
    bare = "".join(STRANGER.public_key.splitlines()[1:-1])
    for text in (SIGNER.public_key + STRANGER.public_key, f"{bare}, {SIGNER.public_key}"):
        keys = parse_keys(text)
        assert len(keys) == 2
        for signer in (SIGNER, STRANGER):
            assert judge(signed(signer=signer), INSTANCE, ADDRESS, keys) is Verification.GENUINE
    pem = tmp_path / "key.pem"
    pem.write_text(SIGNER.public_key)
    printed = subprocess.run(
        ["openssl", "pkey", "-pubin", "-in", str(pem)], capture_output=True, text=True, check=True
    ).stdout
    assert parse_keys(printed) == KEYS


@pytest.mark.parametrize("line_break", ["\n", "\r\n", " ", "", "\\n", "\\r\\n"])
def test_what_became_of_the_line_breaks_of_a_pem_does_not_matter(line_break: str) -> None:
    """Stack parameters, JSON and shells each do something else to them; keys that are refused for it end every node's
    start.
    """
    text = SIGNER.public_key + STRANGER.public_key
    assert parse_keys(line_break.join(text.splitlines())) == parse_keys(text)
    assert parse_keys("".join(text.split())) == parse_keys(text)


def weak(size: int) -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024).public_key().public_numbers()  # noqa: S505
    return (
        rsa.RSAPublicNumbers(key.e, key.n >> size | 1)
        .public_key()
        .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


ELLIPTIC = (
    ec.generate_private_key(ec.SECP256R1())
    .public_key()
    .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    .decode()
)


@pytest.mark.parametrize(
    "text", ["", " ", "verified", "AAAA", SIGNER.public_key[:-60], ELLIPTIC, weak(256)], ids=range(7)
)
def test_what_is_no_key_is_refused_with_the_variable_and_the_command_that_prints_one(text: str) -> None:
    """Taken for no keys at all, it would turn the check off."""
    with pytest.raises(Misconfigured, match="DYNTRAIN_IDENTITY_KEYS") as raised:
        Settings.of({"DYNTRAIN_IDENTITY_KEYS": text})
    assert len(str(raised.value).splitlines()) == 1


@given(st.binary(max_size=200))
def test_any_bytes_for_a_key_are_refused_and_nothing_else(noise: bytes) -> None:
    """Also a true key with a byte changed: a crash while settings are read would stop every handler."""
    true = bytearray(SIGNER.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    for index, byte in enumerate(noise[:8]):
        true[(byte * 7 + index) % 40] ^= byte
    for data in (noise, bytes(true)):
        try:
            keys = parse_keys(base64.b64encode(data).decode())
        except ValueError:
            continue
        assert all(key.modulus.bit_length() >= 1024 for key in keys)


def test_keys_come_from_the_environment_and_unverified_says_so() -> None:
    assert Settings.of({"DYNTRAIN_IDENTITY_KEYS": SIGNER.public_key}).identity_keys == KEYS
    assert Settings.of({"DYNTRAIN_IDENTITY_KEYS": "unverified", "AWS_REGION": "us-east-1"}).identity_keys == ()


@pytest.mark.parametrize("environment", [{}, {"DYNTRAIN_IDENTITY_KEYS": "region"}])
def test_without_keys_of_ones_own_those_of_the_region_count(environment: dict[str, str]) -> None:
    assert Settings.of({**environment, "AWS_REGION": "us-east-1"}).identity_keys == parse_keys(keys_text("us-east-1"))
    for region in ("eusc-de-east-1", "us-nowhere-1", ""):
        assert Settings.of({**environment, "AWS_REGION": region}).identity_keys == (), "nobody would be believed there"


def test_the_shipped_keys_are_of_regions_that_there_are_one_for_each() -> None:
    session = Session()
    known = {
        region
        for partition in session.get_available_partitions()
        for region in session.get_available_regions("ec2", partition, allow_non_regional=False)
    }
    shipped = [region for regions, _ in SHIPPED for region in regions.split()]
    assert len(shipped) == len(set(shipped)) > 30
    assert set(shipped) <= known
    for region in shipped:
        (key,) = trusted_keys("", region)
        assert (key.modulus.bit_length(), key.exponent) == (1024, 65537)
    assert len({key for _, key in SHIPPED}) == len(SHIPPED)


def test_the_key_of_most_regions_is_the_one_that_signs_there() -> None:
    """Its fingerprint is that of the key in the certificate that AWS published in 2014, which is the same one."""
    main = hashlib.sha256(base64.b64decode(keys_text("us-east-1"))).hexdigest()
    assert main == MOST_REGIONS
    assert {keys_text(region) for region in ("eu-central-1", "us-west-2", "ap-northeast-1")} == {keys_text("us-east-1")}


@pytest.mark.parametrize(
    ("setting", "region", "kind", "why"),
    [
        ("", "us-east-1", "region", ""),
        ("region", "us-east-1", "region", ""),
        (" region ", "xx-north-1", "region", "no key of AWS is known for xx-north-1"),
        ("unverified", "us-east-1", "unverified", "it was set so"),
        (SIGNER.public_key, "xx-north-1", "keys", ""),
        ("keys", "xx-north-1", "keys", ""),
    ],
)
def test_what_a_setting_means_is_said_in_a_word(setting: str, region: str, kind: str, why: str) -> None:
    assert (identity_setting_kind(setting), unverified_cause(setting, region)) == (kind, why)


def of_node(document: SignedDocument | None, region: str = "us-east-1") -> Identity:
    return Identity(INSTANCE, ADDRESS, region, "demo", base=True, master=True, tags={}, signed=document)


def test_a_coordinator_goes_by_the_regions_key_if_that_signed_its_own_nodes_document(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A key that AWS had replaced would keep every node out of the job."""
    config = NodeConfig(cluster="demo", mount="/data", training_cmd=("true",))
    shipped = "".join(SIGNER.public_key.splitlines()[1:-1])
    assert identity_keys(of_node(signed()), config) == ""
    monkeypatch.setattr(region_keys, "_KEY_BY_REGIONS", (("us-east-1", shipped),))
    assert identity_keys(of_node(signed()), config) == shipped
    for doubtful in (of_node(signed(signer=STRANGER)), of_node(None), of_node(signed(), "eu-west-3")):
        assert identity_keys(doubtful, config) == ""
    for setting, keys in (("unverified", ""), ("region", shipped), ("AAAA", "AAAA")):
        assert identity_keys(of_node(signed()), config.model_copy(update={"identity_keys": setting})) == keys
