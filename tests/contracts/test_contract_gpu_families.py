"""Which instance types train with which MXNet: held against AWS's own list, and against what was seen on an H100."""

from __future__ import annotations

from pathlib import Path

import pytest
from aws_types import aws_types
from dyntrain.controller.contract.gpu_families import (
    BUILD_CAPABILITIES,
    INSTANCE_FAMILIES,
    build_supports,
    cannot_be_a_node,
    cannot_train,
    lacks_driver,
    unknown_gpu_warning,
    usable_families,
)


def test_every_family_with_gpus_that_aws_lists_is_in_the_table_with_its_chip_and_processor() -> None:
    """A family that is missing is let through with a warning, and its machine is rented."""
    listed = {
        name.partition(".")[0]: kind
        for name, kind in aws_types().items()
        if any(gpu["Manufacturer"] == "NVIDIA" for gpu in kind.get("GpuInfo", {}).get("Gpus", ()))
    }
    assert len(listed) > 15
    assert set(listed) - set(INSTANCE_FAMILIES) == set()
    for name, kind in listed.items():
        gpu = kind["GpuInfo"]["Gpus"][0]["Name"].replace("Server ", "").upper()
        assert (INSTANCE_FAMILIES[name].gpu.upper(), INSTANCE_FAMILIES[name].arm64) == (
            gpu,
            "arm64" in kind["ProcessorInfo"]["SupportedArchitectures"],
        )


@pytest.mark.parametrize("name", ["p3.2xlarge", "p4d.24xlarge", "p4de.24xlarge", "g4dn.xlarge", "g5.xlarge"])
def test_chips_that_the_build_has_code_for_train(name: str) -> None:
    assert cannot_train(name) == cannot_train(name, "mxnet-cu112==1.9.1") == ""


@pytest.mark.parametrize("name", ["g6.xlarge", "gr6.4xlarge", "g6e.xlarge"])
def test_code_for_86_runs_on_89_and_code_for_75_does_not(name: str) -> None:
    assert cannot_train(name) == cannot_be_a_node(name) == ""
    assert "mxnet-cu102 has code for" in cannot_train(name, "mxnet-cu102==1.9.1")


@pytest.mark.parametrize("name", ["p5.4xlarge", "p5e.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge", "g7e.2xlarge"])
def test_newer_chips_are_refused_with_what_to_take_instead(name: str) -> None:
    """Seen on an H100: without PTX there is no code for them, and the first wait raises."""
    assert f"{name} has " in cannot_train(name)
    assert cannot_train(name).endswith("take g4dn, g5, g6, gr6, g6e, p4d or p4de")


def test_older_and_foreign_ones_are_refused_too() -> None:
    assert "compute capability 3.7" in cannot_train("p2.xlarge")
    assert "is arm64" in cannot_train("g5g.xlarge")
    assert "NVIDIA's alone" in cannot_train("g4ad.xlarge")


def test_a_build_for_the_processor_trains_on_no_gpu() -> None:
    assert cannot_train("g5.xlarge", "mxnet==1.9.1").endswith("take mxnet-cu112==1.9.1")


@pytest.mark.parametrize("name", ["p3.2xlarge", "p3dn.24xlarge", "g3.4xlarge", "g6f.large", "gr6f.4xlarge"])
def test_chips_that_the_image_has_no_driver_for_are_no_nodes(name: str) -> None:
    """A node would count no GPU and train on the processor, at the GPU's price."""
    assert f"the {INSTANCE_FAMILIES[name.partition('.')[0]].gpu} GPUs of {name}: take g4dn" in lacks_driver(name)
    assert cannot_be_a_node(name)


def test_what_is_not_known_is_let_through_and_the_nodes_own_look_is_named() -> None:
    assert cannot_be_a_node("p9.48xlarge") == cannot_be_a_node("c6i.xlarge") == ""
    assert cannot_train("p5.48xlarge", "mxnet-cu999") == ""
    assert "p9.48xlarge" in unknown_gpu_warning("p9.48xlarge")
    assert unknown_gpu_warning("g5.xlarge") == ""


@pytest.mark.parametrize("build", BUILD_CAPABILITIES)
def test_every_sentence_can_be_read_at_a_glance_and_names_what_works(build: str) -> None:
    for name in INSTANCE_FAMILIES:
        for sentence in (cannot_train(f"{name}.48xlarge", build), lacks_driver(f"{name}.48xlarge")):
            assert len(sentence.split()) <= 30, sentence
            assert not sentence or ": take " in sentence, sentence
        if BUILD_CAPABILITIES[build]:
            assert name not in usable_families(build).replace(" or", ",").split(", ") or not cannot_be_a_node(
                f"{name}.x", build
            )
    assert usable_families(build) or not BUILD_CAPABILITIES[build]


def test_code_runs_on_later_minor_versions_of_its_own_major_one_alone() -> None:
    assert [build_supports(chip, "mxnet-cu112") for chip in ("3.7", "5.2", "7.5", "8.9", "9.0", "10.0", "12.0")] == [
        False, True, True, True, False, False, False,
    ]  # fmt: skip


def test_the_documents_tables_are_this_one() -> None:
    root = Path(__file__).parents[2]
    nodes = (root / "node_bootstrap" / "NODES.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in nodes.splitlines() if "|" in line]
    table = {name: row for row in rows if len(row) == 4 for name in row[0].split(", ") if name in INSTANCE_FAMILIES}
    assert set(table) == set(INSTANCE_FAMILIES)
    for name, (_, gpus, trains, driver) in table.items():
        assert (trains, driver) == (
            "no" if cannot_train(name) else "yes",
            "yes" if INSTANCE_FAMILIES[name].driver else "no",
        )
        assert INSTANCE_FAMILIES[name].arm64 or INSTANCE_FAMILIES[name].capability in gpus
    assert f"| {usable_families().replace(' or', ',')} |" in (root / "README.md").read_text()
