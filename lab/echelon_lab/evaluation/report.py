"""The report of an evaluation: tables as CSV, pictures, worst cases as scenario files, and a
summary in Markdown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from echelon.model.progress import UNSEEN, CommandProgress, Phase
from echelon_lab.evaluation import tables
from echelon_lab.evaluation.draw import draw
from echelon_lab.evaluation.pictures import draw as draw_pictures
from echelon_lab.evaluation.results import EQUAL, ScenarioResult
from echelon_lab.evaluation.tables import Case, Compared
from echelon_lab.evaluation.tasks import BASELINE, Evaluation
from echelon_lab.scenarios.scenario import PolicyChoice
from echelon_lab.tables import Cell, Table

SUMMARY = "report.md"
WORST = "worst"
"""The directory of the worst cases."""

_ERRORS_SHOWN = 10
_PICTURES, _CASES = "pictures", "cases"
_PICTURES_S, _CASE_S = 3.0, 0.1
"""What tables with pictures, and a scenario file, take a processor, which draws that scenario
again.
"""


def phases(evaluation: Evaluation, worst: int) -> Iterator[Phase]:
    """Yield the phases of `write`."""
    yield Phase(_PICTURES, expected_s=_PICTURES_S)
    if not evaluation.files:
        most = (
            2
            * len(evaluation.modes(0))
            * len(evaluation.policies)
            * min(worst, evaluation.scenarios)
        )
        yield Phase(_CASES, expected_s=most * _CASE_S)


def write(
    evaluation: Evaluation,
    results: Sequence[ScenarioResult],
    worst: int,
    out: Path,
    progress: CommandProgress = UNSEEN,
) -> list[Path]:
    """Write the report into the directory `out`, with the `worst` worst cases of each policy, mode
    and measure.

    Return the files, the summary first. `progress` is told of the phases. Raise `OSError`.
    """
    progress.begin(_PICTURES)
    progress.stage("writing the report")
    compared = compare(evaluation, results)
    shown = tables.tables(compared)
    files = [
        table.write(out)
        for table in (*shown, tables.all_kinds(compared), tables.scenarios(compared))
    ]
    pictures = draw_pictures(compared, out)
    if evaluation.files:
        cases = []
    else:
        cases = tables.worst_cases(compared, worst)
    directory = out / WORST
    directory.mkdir(exist_ok=True)
    for old in directory.glob("*.yaml"):
        old.unlink()
    choices = {choice.label: choice for choice in evaluation.policies}
    progress.begin(_CASES)
    progress.stage("writing the worst cases", len(cases), "files")
    scenarios = []
    for number, case in enumerate(cases, start=1):
        scenarios.append(_write_case(case, choices[case.policy], evaluation.iterations, directory))
        progress.share(number / len(cases))
        progress.done()
    summary = out / SUMMARY
    summary.write_text(_summary(evaluation, compared, shown, pictures, cases), encoding="utf-8")
    return [summary, *files, *pictures, *scenarios]


def compare(evaluation: Evaluation, results: Sequence[ScenarioResult]) -> Compared:
    """Return the results with what tables need to know of the evaluation."""
    return Compared(results, [choice.label for choice in evaluation.policies], BASELINE.label)


def _write_case(case: Case, choice: PolicyChoice, iterations: int, directory: Path) -> Path:
    assert isinstance(case.result.origin, int)
    drawn = draw(case.result.origin)
    if choice.parameters:
        policy: object = {"policy": choice.name, **dict(choice.parameters)}
    else:
        policy = choice.name
    document = drawn.document([BASELINE.label, policy], iterations)
    document["description"] += (
        f"; {case.measure} slowdown {case.ratio:.3f} of that under {BASELINE.label}"
    )
    path = directory / f"{case.name}.yaml"
    path.write_text(
        yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120),
        encoding="utf-8",
    )
    return path


def _summary(
    evaluation: Evaluation,
    compared: Compared,
    shown: Sequence[Table],
    pictures: Sequence[Path],
    cases: Sequence[Case],
) -> str:
    equal = f"{EQUAL:.0%}"
    which = (
        f"the first {evaluation.scenarios} of the half `{evaluation.half}` (seeds "
        f"{evaluation.origins[0]} to {evaluation.origins[-1]})"
    )
    if evaluation.files:
        which = ", ".join(f"`{name}`" for name in evaluation.files)
    what = (
        f"The scenarios are {which}. A run lasts as long as {evaluation.iterations} iterations of"
        " the scenario's slowest job alone; its first third is warm-up. A slowdown is the mean"
        " time of a job's iterations over the time alone; a scenario has a mean over its jobs and"
        " a worst job."
    )
    known = evaluation.knowledge
    if known.draws > 1:
        what += f" It is the mean of {known.draws} runs, each with phases of its own."
    if known.error:
        what += (
            " Policies misjudge the sizes and the computing of each job by up to"
            f" {known.error:.0%}, and do not know when jobs start."
        )
    ratios = (
        "Ratios are means over the scenarios, of the slowdown under the policy over that under"
        f" `{compared.baseline}` in the same mode, or over the physical limit. *Won* and *lost* are"
        f" scenarios in which a policy is more than {equal} better or worse than"
        f" `{compared.baseline}`; *not lost* is the share of the others, *best* the share in which"
        f" no policy is more than {equal} better."
    )
    parts = [
        (
            f"# Evaluation on {len(evaluation.origins)} {'given' if evaluation.files else 'random'}"
            " scenarios"
        ),
        what,
        ratios,
        *(table.markdown() for table in shown),
        *(f"![{picture.stem}]({picture.name})" for picture in pictures),
        _cases(cases).markdown() if cases else "",
        _errors(compared),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _cases(cases: Sequence[Case]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            *(
                case.policy,
                case.mode,
                case.measure,
                f"{case.ratio:.3f}",
                case.result.origin,
                case.result.kind.fabric,
            ),
            *(
                case.result.kind.shape,
                case.result.kind.periods,
                case.result.kind.jobs,
                case.result.load,
            ),
            f"`{WORST}/{case.name}.yaml`",
        )
        for case in cases
    ]
    columns = (
        "policy",
        "mode",
        "measure",
        f"/ {BASELINE.label}",
        "seed",
        "fabric",
        "shape",
        "periods",
        "jobs",
        "load",
    )
    return Table("worst", "The worst cases (run them with `echelon run`)", (*columns, "file"), rows)


def _errors(compared: Compared) -> str:
    counts = Counter(
        f"{policy}, {mode}: {error}"
        for result in compared.results
        for (policy, mode), error in result.errors.items()
    )  # fmt: skip
    if not counts:
        return ""
    lines = [f"- {count} × {error}" for error, count in counts.most_common(_ERRORS_SHOWN)]
    more = len(counts) - len(lines)
    return "\n".join(
        ["**Runs that failed**", "", *lines, *([f"- and {more} more"] if more else [])]
    )
