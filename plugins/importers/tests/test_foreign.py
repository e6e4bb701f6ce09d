"""A file of another tool is named as such, wherever a file of ours is expected."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from echelon.cli import app
from echelon.model import foreign
from echelon.model.documents import DocumentError
from echelon.model.fabric.load import load_fabric
from echelon.model.foreign import foreign_kind
from echelon.model.jobs.spec import load_job_spec
from plugins.importers.tests.topology_files import DATA, imported, simai
from tests.faults import coded, mentions

KINDS = {
    "astra-network.yml": "astra-network",
    "half.topo": "htsim",
    "three-tiers.topo": "htsim",
    "ns3-two-datacentres.txt": "ns3",
    "slurm-topology.conf": "slurm",
    "slurm-topology.yaml": "slurm",
    "fabric.ibnetdiscover": "infiniband",
    "topo.txt": "infiniband",
}
WORKLOADS = {
    "vgg16.graph.txt": "pipedream",
    "all_reduce_4npus_1MB.0.et": "chakra",
    "G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1.csv": "aicb",
    "G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1_A100.txt": "simai",
}


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("file", KINDS)
def test_check_names_topologies(file: str) -> None:
    result = run("check", DATA / file)
    assert result.exit_code == 2
    assert mentions(result.stderr, DATA / file, f"echelon import {KINDS[file]} {DATA / file}")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("file", WORKLOADS)
def test_check_names_workloads(file: str) -> None:
    path = DATA.parent / "workloads" / file
    result = run("check", path)
    assert result.exit_code == 2
    assert mentions(result.stderr, path, f"echelon import {WORKLOADS[file]} {path}")


@pytest.mark.parametrize("suffix", ["txt", "csv", "yaml", "json", "conf"])
@pytest.mark.parametrize("file", KINDS)
def test_no_name_makes_a_topology_something_else(file: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"network.{suffix}"
    path.write_bytes((DATA / file).read_bytes())
    result = run("check", path)
    assert result.exit_code == 2
    assert mentions(result.stderr, f"echelon import {KINDS[file]} {path}")


@pytest.mark.parametrize("load", [load_fabric, load_job_spec])
@pytest.mark.parametrize("file", KINDS)
def test_readers_of_ours_name_topologies(load: object, file: str) -> None:
    assert callable(load)
    command = f"echelon import {KINDS[file]} "
    with pytest.raises(DocumentError, check=coded("not-allowed", str(DATA / file), command)):
        load(DATA / file)


def test_a_scenario_names_the_topology_that_it_names_as_its_fabric(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.yaml"
    file = DATA / "ns3-two-datacentres.txt"
    scenario.write_text(f"scenario: a\nfabric: {file}\njobs: []\npolicies: [fair]\n")
    result = run("check", scenario)
    assert result.exit_code == 2
    assert mentions(result.stderr, file, "echelon import ns3")


def test_importers_name_files_of_other_kinds(tmp_path: Path) -> None:
    out = tmp_path / "out.yaml"
    for kind in ("chakra", "aicb", "slurm", "htsim"):
        result = run("import", kind, DATA / "ns3-two-datacentres.txt", "-o", out)
        assert result.exit_code == 2
        assert mentions(result.stderr, "echelon import ns3")
    # A file of the kind itself is refused for what is wrong with it.
    result = run("import", "htsim", DATA / "half.topo", "-o", out)
    assert "Tier 1" in result.stderr
    assert not out.exists()


@pytest.mark.parametrize("format_name", ["aicb", "astra-sim", "simai"])
def test_readers_of_layers_say_what_is_wrong_with_them(format_name: str, tmp_path: Path) -> None:
    layers = tmp_path / "layers.txt"
    layers.write_text("HYBRID_TRANSFORMER model_parallel_NPU_group: 2\n1\nlayer -1 ten NONE 0\n")
    result = run("import", format_name, layers, "--hosts", "4", "-o", tmp_path / "job.yaml")
    assert result.exit_code == 2
    assert mentions(result.stderr, layers)
    assert "echelon import" not in result.stderr


@pytest.mark.parametrize("length", [b"\x5e", b"\xde\x01"])
def test_a_trace_is_known_by_an_attribute_with_its_schema(length: bytes) -> None:
    # Converted from PyTorch, traces have no version of their own.
    kind = foreign_kind(length + b"\x12\x10\n\x06schema\xea\x01\x051.0.1\x12\x09\n\x03pid")
    assert kind is not None
    assert kind.readers == ("chakra",)


def test_good_files_cost_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = imported("ns3", "ns3-two-datacentres.txt").text
    path = tmp_path / "fabric.yaml"
    path.write_text(text)
    monkeypatch.setattr(foreign, "foreign_kind", None)
    assert run("check", path).exit_code == 0


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"3 2\n",
        b"150 1\n1 0 1 5 1 6:2.0\n",
        b"fabric: a\nhosts: [h1]\nswitches: [s1]\nlinks: []\nextra: 1\n",
        b"scenario: a\n",
        b"topology: [a]\n",
        b"100 1\n200 3\n",
        b"start_us,src\n1,2\n",
    ],
)
def test_files_of_ours_are_not_taken_for_another_tools(text: bytes) -> None:
    assert foreign_kind(text) is None


def test_files_that_are_shipped_are_of_no_other_tool() -> None:
    root = Path(__file__).parents[3]
    files = [*root.glob("topologies/**/*.yaml"), *root.glob("examples/**/*.yaml")]
    assert len(files) > 50
    assert [file for file in files if foreign_kind(file.read_bytes()[:65536])] == []


def test_a_fabric_file_is_written_and_summarised(tmp_path: Path) -> None:
    out = tmp_path / "two.yaml"
    topology = tmp_path / "simai"
    topology.write_bytes(simai(2, 4, 2))
    result = run("import", "ns3", topology, "-o", out, "--draw", tmp_path / "two.png")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "2 hosts, 6 switches, 16 links" in result.stdout
    assert "2 NVSwitches inside servers" in result.stdout
    assert (tmp_path / "two.png").stat().st_size > 1000
    assert load_fabric(out).name == "two"
    assert run("check", out).exit_code == 0


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (("--hosts", "4"), ("hosts",)),
        (("--merge",), ("merge",)),
        (("--set", "gpus=left"), ("gpus",)),
        (("--rate", "fast"), ("rate", "fast")),
    ],
)
def test_options_that_a_topology_has_not(
    options: tuple[str, ...], facts: tuple[str, ...], tmp_path: Path
) -> None:
    result = run("import", "ns3", DATA / "ns3-two-datacentres.txt", "-o", tmp_path / "x", *options)
    assert result.exit_code == 2
    assert mentions(result.stderr, *facts)


@pytest.mark.parametrize("file", KINDS)
def test_damaged_files_are_refused_or_read(file: str) -> None:
    """Whatever is cut, doubled or replaced, no importer ends with anything but `DocumentError`."""
    settings = {"rate": "1 Gbit/s"} if KINDS[file] == "slurm" else {}
    data = (DATA / file).read_bytes()
    dice = random.Random(file)
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(dice.randint(1, 3)):
            place = dice.randrange(len(damaged))
            length = dice.choice((0, 1, 1, 5, 40))
            words = (b"", b"-1", b"\xff", b"9" * 25, b"\n", b"[", b" ", b"0", damaged[:place])
            damaged[place : place + length] = dice.choice(words)
            damaged = damaged or bytearray(b" ")
        with suppress(DocumentError):
            imported(KINDS[file], bytes(damaged), **settings)
