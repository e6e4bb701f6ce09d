"""The picture of a job: where its arrows lead, and that both kinds of picture are written."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from fractions import Fraction
from pathlib import Path

import pytest

from echelon.model.documents import parse_document
from echelon.model.jobs import build_job
from echelon.model.jobs.graph import Job
from echelon.model.jobs.paradigm import registered
from echelon.model.jobs.pipelines import gpipe
from echelon.model.jobs.spec import JobSpec
from echelon_lab.plots import inputs as picture
from echelon_lab.plots import write_file

EXAMPLES = {
    title: example
    for paradigm in registered().sections.values()
    for title, example in paradigm.examples.items()
}


def test_an_arrow_leads_from_the_start_to_the_ideal_finish() -> None:
    """Stage 1 takes 1 s for a micro-batch, stage 2 takes 3 s: the third activation has 4 s to
    arrive.
    """
    job = Job("p", *gpipe(["h1", "h2"], 3, [Fraction(1), Fraction(3)], [8]))
    found = [
        (arrow.flow.name, arrow.start_s, arrow.ideal_finish_s) for arrow in picture.arrows(job)
    ]
    assert found == [
        ("activation-s1-m1", 1.0, 1.0),
        ("activation-s1-m2", 2.0, 4.0),
        ("activation-s1-m3", 3.0, 7.0),
    ]


@pytest.mark.parametrize("title", EXAMPLES)
def test_every_example_can_be_drawn(title: str, tmp_path: Path) -> None:
    spec = parse_document(JobSpec, EXAMPLES[title], title)
    job = build_job(spec)

    def draw(name: str) -> Path:
        [file] = write_file(
            lambda style: [picture.draw_job(job, tuple(spec.hosts), style)], tmp_path / name
        )
        return file

    svg = draw("job.svg")
    assert ET.parse(svg).getroot().tag.endswith("svg")
    assert any(element.text for element in ET.parse(svg).iter())
    if title == next(iter(EXAMPLES)):
        assert draw("again.svg").read_bytes() == svg.read_bytes()
        assert draw("job.png").read_bytes().startswith(b"\x89PNG")
