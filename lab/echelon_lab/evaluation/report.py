"""The report of an evaluation: tables, pictures, worst cases as scenario files, and a summary."""

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
_PICTURES = "pictures"
_CASES = "cases"
_PICTURES_S, _CASE_S = 3.0, 0.1
"""The processor time of the tables with pictures, and of a scenario file.

It draws the scenario of the file again.
"""


def phases(evaluation: Evaluation, worst: int) -> Iterator[Phase]:
    """Yield the phases of `write`."""
    yield Phase(_PICTURES, expected_s=_PICTURES_S)
    if not evaluation.files:
        kinds = 2 * len(evaluation.modes(0)) * len(evaluation.policies)
        most = kinds * min(worst, evaluation.scenarios)
        yield Phase(_CASES, expected_s=most * _CASE_S)


def write(
    evaluation: Evaluation,
    results: Sequence[ScenarioResult],
    worst: int,
    out: Path,
    progress: CommandProgress = UNSEEN,
) -> list[Path]:
    """Write the report into the directory `out`, and return the files, the summary first.

    `worst` is how many worst cases of each policy, mode and measure it keeps. `progress` is told of
    the phases. Raise `OSError`.
    """
    progress.begin(_PICTURES)
    progress.stage("writing the report")
    compared = compare(evaluation, results)
    shown_tables = tables.tables(compared)
    all_tables = [*shown_tables, tables.all_kinds(compared), tables.scenarios(compared)]
    files = [table.write(out) for table in all_tables]
    pictures = draw_pictures(compared, out)

    # A scenario of a file has its file already.
    cases = []
    if not evaluation.files:
        cases = tables.worst_cases(compared, worst)
    scenarios = _write_cases(evaluation, cases, out / WORST, progress)
    summary = out / SUMMARY
    text = _summary(evaluation, compared, shown_tables, pictures, cases)
    summary.write_text(text, encoding="utf-8")
    return [summary, *files, *pictures, *scenarios]


def _write_cases(
    evaluation: Evaluation,
    cases: Sequence[Case],
    directory: Path,
    progress: CommandProgress,
) -> list[Path]:
    directory.mkdir(exist_ok=True)
    # Those of an earlier evaluation would look like this one's.
    for old in directory.glob("*.yaml"):
        old.unlink()
    choices = {choice.label: choice for choice in evaluation.policies}
    progress.begin(_CASES)
    progress.stage("writing the worst cases", len(cases), "files")
    files = []
    for number, case in enumerate(cases, start=1):
        files.append(_write_case(case, choices[case.policy], evaluation.iterations, directory))
        progress.share(number / len(cases))
        progress.done()
    return files


def compare(evaluation: Evaluation, results: Sequence[ScenarioResult]) -> Compared:
    """Return the results with what tables need to know of the evaluation."""
    return Compared(results, [choice.label for choice in evaluation.policies], BASELINE.label)


def _write_case(
    case: Case,
    choice: PolicyChoice,
    iterations: int,
    directory: Path,
) -> Path:
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
        yaml.safe_dump(
            document,
            sort_keys=False,
            default_flow_style=None,
            width=120,
        ),
        encoding="utf-8",
    )
    return path


def _summary(
    evaluation: Evaluation,
    compared: Compared,
    shown_tables: Sequence[Table],
    pictures: Sequence[Path],
    cases: Sequence[Case],
) -> str:
    origin = "random"
    if evaluation.files:
        origin = "given"
    parts = [
        f"# Evaluation on {len(evaluation.origins)} {origin} scenarios",
        _what_ran(evaluation),
        _how_to_read(compared.baseline),
    ]
    parts += [table.markdown() for table in shown_tables]
    parts += [f"![{picture.stem}]({picture.name})" for picture in pictures]
    if cases:
        parts.append(_cases(cases).markdown())
    parts.append(_errors(compared))
    return "\n\n".join(part for part in parts if part) + "\n"


def _what_ran(evaluation: Evaluation) -> str:
    origins = evaluation.origins
    if evaluation.files:
        scenarios = ", ".join(f"`{name}`" for name in evaluation.files)
    else:
        scenarios = (
            f"the first {evaluation.scenarios} of the half `{evaluation.half}`"
            f" (seeds {origins[0]} to {origins[-1]})"
        )
    text = (
        f"The scenarios are {scenarios}. A run lasts as long as {evaluation.iterations} iterations"
        " of the scenario's slowest job alone; its first third is warm-up. A slowdown is the mean"
        " time of a job's iterations over the time alone; a scenario has a mean over its jobs and"
        " a worst job."
    )
    knowledge = evaluation.knowledge
    if knowledge.draws > 1:
        text += f" It is the mean of {knowledge.draws} runs, each with phases of its own."
    if knowledge.error:
        text += (
            " Policies misjudge the sizes and the computing of each job by up to"
            f" {knowledge.error:.0%}, and do not know when jobs start."
        )
    return text


def _how_to_read(baseline: str) -> str:
    equal = f"{EQUAL:.0%}"
    return (
        "Ratios are means over the scenarios, of the slowdown under the policy over that under"
        f" `{baseline}` in the same mode, or over the physical limit. *Won* and *lost* are"
        f" scenarios in which a policy is more than {equal} better or worse than"
        f" `{baseline}`; *not lost* is the share of the others, *best* the share in which"
        f" no policy is more than {equal} better. *± %* is half of the 95 % interval of a"
        " scenario's mean slowdown, in the median: with a much longer run, the mean lies within it"
        " in 95 of 100 scenarios."
    )


def _cases(cases: Sequence[Case]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for case in cases:
        result = case.result
        kind = result.kind
        about = (result.origin, kind.fabric, kind.shape, kind.periods, kind.jobs, result.load)
        ratio = f"{case.ratio:.3f}"
        file = f"`{WORST}/{case.name}.yaml`"
        rows.append((case.policy, case.mode, case.measure, ratio, *about, file))
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
        "file",
    )
    return Table("worst", "The worst cases (run them with `echelon run`)", columns, rows)


def _errors(compared: Compared) -> str:
    counts: Counter[str] = Counter()
    for result in compared.results:
        counts.update(
            f"{policy}, {mode}: {error}" for (policy, mode), error in result.errors.items()
        )
    if not counts:
        return ""
    most_common = counts.most_common(_ERRORS_SHOWN)
    lines = ["**Runs that failed**", ""]
    lines += [f"- {count} × {error}" for error, count in most_common]
    more = len(counts) - len(most_common)
    if more:
        lines.append(f"- and {more} more")
    return "\n".join(lines)
