"""The commands for operators, on a running service with four switches."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from finsy.proto import p4r
from pydantic import TypeAdapter

from echelon.cli.nccl import nccl_environment
from echelon.controller.resources.jobs import JobResource, JobSummary
from echelon.controller.resources.links import LinkResource
from echelon.controller.resources.plan import ClassesResource, ClassResource, PlanResource
from echelon.controller.resources.policy import PolicyResource
from echelon.controller.resources.switches import IntentResource, SwitchDifference, SwitchResource
from echelon.switches.processes import free_port
from tests.echelon.cli.conftest import JOB, Operated
from tests.echelon.service.lab import PATIENCE_S, settle, until
from tests.faults import mentions

pytestmark = pytest.mark.xdist_group("cli-service")


def submit(service: Operated, **replacements: str) -> None:
    service.good("job", "submit", service.file(**replacements), "--wait")


def columns(text: str) -> list[list[str]]:
    """Return the cells of a table written for no terminal, which are separated by two blanks or
    more.
    """
    return [re.split(r" {2,}", line) for line in text.splitlines()]


# -- jobs ------------------------------------------------------------------------------------------


def test_a_jobs_life(service: Operated) -> None:
    file = service.file()
    said = service.good("job", "submit", file, "--wait").splitlines()
    assert len(said) == 2
    assert said[0] in ("job 'bert' is accepted", "job 'bert' is planned", "job 'bert' is installed")
    assert re.fullmatch(r"job 'bert' is installed in [0-9.]+ m?s", said[1])
    titles, row = columns(service.good("job", "list"))
    assert titles == [
        "JOB",
        "STATE",
        "PARALLELISM",
        "WORKERS",
        "FLOWS",
        "ITERATION",
        "TARDINESS",
        "PROBLEM",
    ]
    assert row == ["bert", "installed", "pipeline", "2", "6", "-", "-"]
    shown = service.good("job", "show", "bert", "--flows")
    for fact in (
        r"state +installed",
        r"workers +h1, h3",
        r"flows +6",
        r"activation-s1-m1 +h1 +h3 +100000 +0",
    ):
        assert re.search(fact, shown), shown
    assert service.good("job", "remove", "bert") == "job 'bert' is removed\n"
    assert columns(service.good("job", "list")) == [titles]


def test_the_story_of_a_job(service: Operated) -> None:
    # Another test's job of the same name would be a part of its story.
    submit(service, bert="gpt")
    answer = json.loads(service.good("job", "show", "gpt", "--story", "--json"))
    with service.client() as client:
        records = client.story("gpt").records
    shown = [record["text"] for record in answer["records"]]
    # The job may be timed alone between the two calls.
    assert shown
    assert shown == [record.text for record in records][: len(shown)]
    titles, *rows = columns(service.good("job", "show", "gpt", "--story"))
    assert titles == ["TIME", "TIMES", "KIND", "WHAT HAPPENED"]
    kinds = [row[2] for row in rows]
    assert kinds[0] == "RegisterJob"
    assert "JobInstalled" in kinds
    service.good("job", "remove", "gpt")
    assert "JobRemoved" in service.good("job", "show", "gpt", "--story")
    assert "nobody" in service.bad("job", "show", "nobody", "--story")


def test_submitting_again_changes_nothing_and_another_job_of_that_name_is_refused(
    service: Operated,
) -> None:
    submit(service)
    assert service.good("job", "submit", service.file()) == "job 'bert' is installed\n"
    other = service.file(micro_batches="micro_batches", **{"3, forward": "4, forward"})
    line = service.bad("job", "submit", other)
    assert line.startswith(f"{other}: ")
    assert "bert" in line
    assert json.loads(service.good("job", "show", "bert", "--json"))["flow_count"] == 6
    service.good("job", "submit", other, "--replace", "--wait")
    assert json.loads(service.good("job", "show", "bert", "--json"))["flow_count"] == 8


def test_a_dry_run_of_every_change(service: Operated) -> None:
    """A dry run says what would change, and changes nothing.

    The tests of the daemon check what it says about entries.
    """
    submit(service)
    with service.client() as client:
        settle(client)
    replaced = service.file(**{"3, forward": "4, forward"})
    for command in (
        ("job", "submit", replaced, "--replace"),
        ("job", "remove", "bert"),
        ("policy", "set", "fair"),
        ("link", "drain", "leaf1", "spine1"),
        ("link", "restore", "leaf1", "spine1"),
    ):
        shown = service.good(*command, "--dry-run")
        tables = [columns(text) for text in shown.split("\n\n")]
        assert tables[0][0] == ["SWITCH", "TABLE", "ADDED", "CHANGED", "REMOVED"]
        if "restore" in command:
            assert len(tables[0]) == 1, "the link is up already"
            continue
        assert all(int(cell) >= 0 for row in tables[0][1:] for cell in row[2:])
        assert any(row[:1] == ["bert"] for row in tables[-1]), shown
        if "policy" in command:
            assert ["SWITCH", "PORT", "QUEUE", "LEVEL", "WEIGHT", "RATE"] in tables[1]
    assert json.loads(service.good("job", "show", "bert", "--json"))["flow_count"] == 6
    assert json.loads(service.good("policy", "show", "--json"))["name"] == "echelon"
    line = service.bad("job", "submit", replaced, "--dry-run")
    assert "'bert'" in line


def test_a_token_that_others_can_read(service: Operated) -> None:
    file = service.tokens["operator"]
    file.chmod(0o644)
    try:
        result = service.run("job", "list")
    finally:
        file.chmod(0o600)
    assert result.exit_code == 0
    [line] = result.stderr.splitlines()
    assert line.startswith(f"warning: {file} ")
    assert f"chmod o-rwx {file}" in line


def test_several_jobs_in_one_file_and_from_standard_input(service: Operated) -> None:
    both = service.file(JOB + "---\n" + JOB.replace("bert", "gpt") + "---\n")
    assert service.good("job", "submit", both).count("is accepted") == 2
    assert (
        service.good("job", "submit", "-f", "-", stdin=JOB.replace("bert", "t5"))
        == "job 't5' is accepted\n"
    )
    assert [job["name"] for job in json.loads(service.good("job", "list", "--json"))] == [
        "bert",
        "gpt",
        "t5",
    ]
    again = service.bad(
        "job", "submit", both, both.parent / both.name, "-f", service.file(bert="gpt")
    )
    assert "'gpt'" in again
    assert f"{both}, document 2" in again


def test_nothing_is_sent_if_a_document_is_faulty(service: Operated) -> None:
    file = service.file(JOB + "---\n" + JOB.replace("bert", "gpt").replace("10 ms", "10 parsec"))
    line = service.bad("job", "submit", file)
    assert line.startswith(f"{file}, document 2: pipeline.forward: ")
    assert "standard input" in service.bad("job", "submit", "-")
    assert "no job" in service.bad("job", "submit")
    assert service.good("job", "list", "--json") == "[]\n"


def test_a_refused_job_does_not_keep_the_others(service: Operated) -> None:
    file = service.file(
        "---\n".join(
            (JOB, JOB.replace("bert", "gpt").replace("h3", "h9"), JOB.replace("bert", "t5"))
        )
    )
    result = service.run("job", "submit", file, "--wait")
    assert result.exit_code == 2
    assert re.findall(r"'(\w+)' is installed in", result.stdout) == ["bert", "t5"]
    [line] = result.stderr.splitlines()
    assert line.startswith(f"{file}, document 2: workers[1]: ")


def test_the_command_speaks_of_its_own_options(service: Operated) -> None:
    service.good("job", "submit", service.file())
    line = service.bad("job", "submit", service.file(**{"3, forward": "4, forward"}))
    assert "--replace" in line
    assert "PUT" not in line
    line = service.bad("job", "list", role=None)
    assert "--token-file" in line
    assert "Authorization" not in line


def test_a_job_that_is_not_there_does_not_keep_the_others(service: Operated) -> None:
    service.good("job", "submit", service.file(bert="a"), service.file(bert="b"))
    result = service.run("job", "remove", "a", "nope", "b")
    assert result.exit_code == 2
    assert result.stdout == "job 'a' is removed\njob 'b' is removed\n"
    [line] = result.stderr.splitlines()
    assert "nope" in line
    assert service.good("job", "list", "--json") == "[]\n"


def test_who_changed_what_is_listed(service: Operated) -> None:
    service.good("job", "submit", service.file())
    service.good("link", "drain", "leaf1", "spine1")
    service.good("policy", "set", "echelon", "order=setf")
    service.good("job", "remove", "bert")
    found = json.loads(service.good("events", "--last", "4", "--json"))
    assert [(one["action"], one["object"]) for one in found] == [
        ("register job", "bert"),
        ("drain link", "leaf1 - spine1"),
        ("choose policy", "echelon order=setf"),
        ("remove job", "bert"),
    ]
    assert {one["client"] for one in found} == {"operator"}
    shown = service.good("events", "--last", "1")
    assert "operator" in shown
    assert found[-1]["request"] in shown


def test_parts_of_lists(service: Operated) -> None:
    service.good(
        "job",
        "submit",
        service.file("---\n".join(JOB.replace("bert", name) for name in ("b", "a", "c"))),
    )
    assert [row[0] for row in columns(service.good("job", "list", "--limit", "2"))] == [
        "JOB",
        "a",
        "b",
    ]
    with service.client() as client:
        settle(client)
    assert len(columns(service.good("job", "list", "--state", "installed", "--worker", "h1"))) == 4
    assert len(columns(service.good("job", "list", "--state", "unplanned"))) == 1
    assert "--state" in service.bad("job", "list", "--state", "gone")
    first = json.loads(service.good("plan", "show", "--limit", "2", "--json"))["flows"]
    rest = service.good(
        "plan", "show", "--after", f"{first[-1]['job']}/{first[-1]['flow']}", "--json"
    )
    whole = json.loads(service.good("plan", "show", "--json"))["flows"]
    assert first + json.loads(rest)["flows"] == whole
    found = json.loads(
        service.good("events", "--of", "b", "--client", "operator", "--last", "1", "--json")
    )
    assert [(one["action"], one["object"]) for one in found] == [("register job", "b")]
    older = json.loads(
        service.good("events", "--of", "b", "--before", found[0]["request"], "--json")
    )
    assert all(one["object"] == "b" and one["at"] < found[0]["at"] for one in older)


def test_of_a_list_with_a_bad_file_nothing_is_submitted(service: Operated) -> None:
    bad = service.file(**{"10 ms": "10 parsec"})
    line = service.bad("job", "submit", service.file(), bad)
    assert line.startswith(f"{bad}: pipeline.forward: ")
    assert service.good("job", "list", "--json") == "[]\n"


def test_a_job_that_does_not_fit_the_fabric_names_its_file_and_key(service: Operated) -> None:
    file = service.file(h3="h9")
    line = service.bad("job", "submit", file)
    assert line.startswith(f"{file}: workers[1]: ")


def test_waiting_for_what_cannot_be_ends_with_status_1(service: Operated) -> None:
    for spine in ("spine1", "spine2"):
        service.good("link", "drain", "leaf1", spine)
    result = service.run("job", "submit", service.file(), "--wait")
    assert result.exit_code == 1
    assert result.stdout == "job 'bert' is accepted\n"
    assert re.fullmatch(r"job 'bert' is unplanned: .+\n", result.stderr)
    _, row = columns(service.good("job", "list"))
    assert row[1] == "unplanned"
    assert "path" in row[-1]
    assert "path" in "".join(service.pictured("job", "list", width=80)[3:])


@pytest.mark.parametrize(
    "command",
    [
        ("job", "show", "nobody"),
        ("job", "remove", "nobody"),
        ("job", "distances", "nobody", "e", "0 s"),
        ("switch", "show", "nobody"),
        ("switch", "show", "nobody", "--intent"),
        ("plan", "show", "--job", "nobody"),
        ("plan", "show", "--switch", "nobody"),
        ("plan", "diff", "nobody"),
        ("link", "drain", "nobody", "leaf1"),
        ("policy", "set", "nobody"),
    ],
)
def test_who_is_not_there_is_named(command: tuple[str, ...], service: Operated) -> None:
    submit(service)
    assert "'nobody'" in service.bad(*command)


def test_reported_distances_are_in_force(service: Operated) -> None:
    submit(service)
    said = service.good("job", "distances", "bert", "activation-s1", "0 s", "7 ms", "9 ms")
    assert said == "job 'bert': 3 offsets of activation-s1 are in force\n"
    job = JobResource.model_validate_json(service.good("job", "show", "bert", "--json"))
    assert job.echelonflows[0].offsets_s == (0.0, 0.007, 0.009)
    assert re.search(r"activation-s1 +3 +9 ms", service.good("job", "show", "bert"))
    assert service.bad("job", "distances", "bert", "activation-s1", "0 s", "7").startswith(
        "offsets[1]: "
    )
    assert "offsets" in service.bad("job", "distances", "bert", "activation-s1", "0 s")


# -- switches, plan --------------------------------------------------------------------------------


def test_what_a_program_exports_for_its_class(service: Operated) -> None:
    submit(service)
    refused = service.run("job", "env", "bert")
    assert refused.exit_code == 1
    assert "policy echelon " in refused.stderr
    assert "job 'bert'" in refused.stderr
    assert "echelon policy set " in refused.stderr
    service.good("policy", "set", "crux")
    with service.client() as client:
        until(lambda: client.plan("bert").policy == "crux", "no plan of the new policy")
        (queue,) = {flow.ranking.parameters["queue"] for flow in client.plan("bert").flows}
    comment, *exports = service.good("job", "env", "bert").splitlines()
    assert comment == f"# job bert, policy crux: queue {queue}, DSCP {8 * queue}"
    # The byte in the IPv4 header: six bits of code point, and two that say ECN-capable (RFC 3168).
    assert exports == [
        f"export NCCL_IB_TC={queue << 5 | 2}",
        f"export NCCL_IB_SL={queue}",
        "unset ECHELON_TRAFFIC_CLASSES",
    ]
    of_json, *_ = json.loads(service.good("job", "env", "bert", "--json"))["classes"]
    assert of_json["traffic_class"] == queue << 5 | 2


def group_of(name: str, queue: int | None) -> ClassResource:
    if queue is None:
        return ClassResource(echelonflow=name, queue=None, dscp=None, traffic_class=None)
    dscp = 8 * queue
    return ClassResource(echelonflow=name, queue=queue, dscp=dscp, traffic_class=dscp << 2 | 2)


def test_a_class_for_each_communicator() -> None:
    """NCCL_IB_TC overrides them in NCCL, and not in torchcomms: it has to go. And without a service
    level of its own, NCCL takes the byte for one, which has four bits.
    """
    groups = (group_of("dp", 5), group_of("tp it's", 2), group_of("pp", None))
    environment = nccl_environment(ClassesResource(job="bert", policy="mine", classes=groups))
    script = "\n".join([*environment.lines(), 'echo "$ECHELON_TRAFFIC_CLASSES"', "env"])
    shell = {"NCCL_IB_TC": "7", "PATH": os.environ["PATH"]}
    done = subprocess.run(["sh", "-c", script], env=shell, capture_output=True, text=True)
    setting, *variables = done.stdout.splitlines()
    assert setting == "dp=162,tp it's=66"
    assert "NCCL_IB_SL=0" in variables
    assert not [line for line in variables if line.startswith("NCCL_IB_TC")]
    assert done.stderr == ""
    applied = environment.applied_to(shell)
    assert "NCCL_IB_TC" not in applied
    assert applied["NCCL_IB_SL"] == "0"
    notes = " ".join(environment.notes)
    assert mentions(notes, "trafficClass", "echelon_torch.nccl_options", "dp: traffic class 162")
    assert mentions(notes, "pp: ranked packet by packet")
    with pytest.raises(ValueError, match=r"policy mine ranks .* packet by packet"):
        nccl_environment(ClassesResource(job="bert", policy="mine", classes=groups[2:]))


def test_switches_and_what_they_hold(service: Operated) -> None:
    submit(service)
    with service.client() as client:
        settle(client)
    titles, *rows = columns(service.good("switch", "list"))
    assert titles[:2] == ["SWITCH", "STATE"]
    assert [row[:2] for row in rows] == [[name, "ready"] for name in service.lab.switches]
    assert [row[4] for row in rows] == [switch.address for switch in service.lab.switches.values()]
    held = len(service.lab.switches["leaf1"].entries())
    assert rows[0][5] == str(held)
    shown = service.good("switch", "show", "leaf1", "--intent")
    assert re.search(rf"entries +{held} held, {held} wanted, 0 of others", shown)
    intent = IntentResource.model_validate_json(
        service.good("switch", "show", "leaf1", "--intent", "--json")
    )
    assert len(intent.entries) == held
    table = shown.split("\n\n")[1].splitlines()
    assert len(table) == held + 1
    assert (
        sum(line.startswith("bert") for line in table)
        == sum(entry.owner == "bert" for entry in intent.entries)
        > 0
    )


def test_the_plan_and_its_filters(service: Operated) -> None:
    service.good("policy", "set", "echelon", "plan=rule")
    submit(service)
    submit(service, bert="local", **{"[h1, h3]": "[h3, h4]"})
    shown = service.good("plan", "show")
    assert re.search(r"^policy +echelon$", shown, re.MULTILINE)
    assert re.search(
        r"^bert +activation-s1-m2 +h1 > leaf1 > spine. > leaf2 > h3 +deadline, echelonflow"
        r" activation-s1, offset 10 ms",
        shown,
        re.MULTILINE,
    )
    plan = PlanResource.model_validate_json(service.good("plan", "show", "--json"))
    assert len(plan.flows) == 12
    for option, flows in (
        (("--job", "local"), 6),
        (("--switch", "leaf1"), 6),
        (("--switch", "leaf2"), 12),
    ):
        assert len(json.loads(service.good("plan", "show", *option, "--json"))["flows"]) == flows


@pytest.mark.long
def test_who_judged_the_best_plans(service: Operated) -> None:
    """The service runs packets in the process that searches."""
    service.good("policy", "set", "echelon", "judge=packets")
    submit(service)
    submit(service, bert="other")

    def judged() -> bool:
        with service.client() as client:
            why = client.plan(why=True).why
        return bool(why) and why[0].judge == "packets"

    until(judged, "a plan judged from packets")
    shown = service.good("plan", "show", "--why")
    assert re.search(r"^judged by +packets$", shown, re.MULTILINE)
    assert re.search(r"^by the model +bert [0-9.]+, other [0-9.]+$", shown, re.MULTILINE)
    titles, best, *_ = columns(shown[shown.index("PLAN  ") :])
    assert titles == ["PLAN", "MEAN", "WORST", "SCORE", "DRAWS", "BY THE MODEL"]
    assert float(best[titles.index("BY THE MODEL")]) >= 1
    service.good("policy", "set", "echelon")


def test_why_the_plan_is_as_it_is(service: Operated) -> None:
    submit(service)
    # The policy is asked what its plan lacks only after the plan is on the switches.
    with service.client() as client:
        settle(client)
    assert "planned by" in service.good("plan", "show", "--why")
    submit(service, bert="other")
    with service.client() as client:
        settle(client)
        (why,) = client.plan(why=True).why
    shown = service.good("plan", "show", "--why")
    assert re.search(r"^jobs +bert, other$", shown, re.MULTILINE)
    assert re.search(rf"^planned by +{why.plan}$", shown, re.MULTILINE)
    rows = columns(shown[shown.index("PLAN  ") :])
    assert rows[0] == ["PLAN", "MEAN", "WORST", "SCORE", "DRAWS"]
    assert [row[0] for row in rows[1:]] == [one.plan for one in why.tried]
    assert [row[0] for row in rows if row[-1] == "in force"] == [why.plan]
    assert (
        json.loads(service.good("plan", "show", "--why", "--job", "bert", "--json"))["why"][0][
            "plan"
        ]
        == why.plan
    )
    service.good("policy", "set", "fair")
    with service.client() as client:
        settle(client)
    assert "simulates nothing" in service.good("plan", "show", "--why")


def test_the_difference_is_what_somebody_else_changed(service: Operated) -> None:
    submit(service)
    with service.client() as client:
        settle(client)
        election_id = client.switch("leaf1").election_id
    assert service.good("plan", "diff") == "".join(
        f"{name}: no differences\n" for name in service.lab.switches
    )

    switch = service.lab.switches["leaf1"]
    entry = next(entry for entry in switch.entries() if entry.match and not entry.priority)

    def write(kind: p4r.Update.Type) -> None:
        # As the controller itself, since a backup could not.
        request = p4r.WriteRequest(
            device_id=switch.device_id, election_id=p4r.Uint128(high=election_id)
        )
        request.updates.add(type=kind, entity=p4r.Entity(table_entry=entry))
        with switch.stub() as stub:
            stub.Write(request, timeout=PATIENCE_S)

    write(p4r.Update.DELETE)
    result = service.run("plan", "diff")
    assert (result.exit_code, result.stderr) == (1, "")
    first, change, *others = result.stdout.splitlines()
    assert first == "leaf1: 1 difference"
    assert change.startswith("  + ")
    assert others == [f"{name}: no differences" for name in service.lab.switches if name != "leaf1"]
    assert service.good("plan", "diff", "leaf2") == "leaf2: no differences\n"
    result = service.run("plan", "diff", "leaf1", "--json")
    assert result.exit_code == 1
    [difference] = TypeAdapter(list[SwitchDifference]).validate_json(result.stdout)
    assert len(difference.inserts) == 1
    write(p4r.Update.INSERT)
    assert service.good("plan", "diff", "leaf1") == "leaf1: no differences\n"


# -- policy, links ---------------------------------------------------------------------------------


def test_the_policy_is_changed_and_shown(service: Operated) -> None:
    assert (
        service.good("policy", "set", "echelon", "order=setf")
        == "the policy is echelon(order=setf)\n"
    )
    assert service.good("policy", "show").splitlines()[0] == "policy  echelon(order=setf)"
    assert service.good("policy", "set", "fair") == "the policy is fair\n"
    policy = PolicyResource.model_validate_json(service.good("policy", "show", "--json"))
    assert policy.name == "fair"
    assert policy.choices["echelon"]["order"][0] == "left"
    for parameters, name in (
        (["order=worst"], "'worst'"),
        (["odrer=setf"], "'order'"),
        (["order"], "'order'"),
        (["order=setf", "order=setf"], "order"),
        (["=setf"], "'=setf'"),
    ):
        assert name in service.bad("policy", "set", "echelon", *parameters)
    assert service.good("policy", "show").splitlines()[0] == "policy  fair"


def test_links_are_drained_and_restored(service: Operated) -> None:
    submit(service)
    assert service.good("link", "drain", "leaf1", "spine1") == "link leaf1 - spine1 is drained\n"
    states = {(link.a, link.b): link.state for link in _links(service)}
    assert states["leaf1", "spine1"] == "drained"
    assert sum(state == "drained" for state in states.values()) == 1
    assert service.good("link", "restore", "spine1", "leaf1") == "link leaf1 - spine1 is up\n"
    assert {link.state for link in _links(service)} == {"up"}
    assert columns(service.good("link", "list"))[1] == ["h1", "leaf1", "1 Gbit/s", "0 s", "up", "-"]


def _links(service: Operated) -> list[LinkResource]:
    return TypeAdapter(list[LinkResource]).validate_json(service.good("link", "list", "--json"))


def test_lists_as_json_are_what_the_api_answers(service: Operated) -> None:
    submit(service)
    assert [
        job.name
        for job in TypeAdapter(list[JobSummary]).validate_json(
            service.good("job", "list", "--json")
        )
    ] == ["bert"]
    switches = TypeAdapter(list[SwitchResource]).validate_json(
        service.good("switch", "list", "--json")
    )
    assert [switch.name for switch in switches] == list(service.lab.switches)
    assert (
        SwitchResource.model_validate_json(service.good("switch", "show", "leaf2", "--json")).name
        == "leaf2"
    )


def test_errors_as_json_have_the_form_of_the_api(service: Operated) -> None:
    answered = json.loads(service.bad("job", "show", "nobody", "--json"))["error"]
    assert (answered["status"], answered["code"], "'nobody'" in answered["reason"]) == (
        404,
        "unknown-job",
        True,
    )
    url = f"http://127.0.0.1:{free_port()}"
    unanswered = json.loads(service.bad("switch", "list", "--json", "--url", url, status=1))[
        "error"
    ]
    assert (unanswered["status"], unanswered["code"], unanswered["path"]) == (None, "no-answer", "")


# -- who may, and where it is ----------------------------------------------------------------------


def test_roles(service: Operated) -> None:
    assert service.run("job", "list", role="read-only").exit_code == 0
    for command in (
        ("job", "submit", service.file()),
        ("link", "drain", "leaf1", "spine1"),
        ("policy", "set", "fair"),
    ):
        assert "operator" in service.bad(*command, role="read-only")
        assert "token" in service.bad(*command, role=None)
    assert "token" in service.bad("job", "list", role=None)


def test_a_token_that_is_none_is_not_repeated(service: Operated, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("echelon_" + "x" * 43)
    file.chmod(0o600)
    line = service.bad("job", "list", "--token-file", file)
    assert "xxx" not in line
    assert "token" in line
    assert str(tmp_path / "none") in service.bad("job", "list", "--token-file", tmp_path / "none")


def test_nobody_answers(service: Operated) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert service.bad("job", "list", "--url", url, status=1).startswith(f"{url} ")
    assert "'ftp://here'" in service.bad("job", "list", "--url", "ftp://here")


@pytest.mark.parametrize("width", [80, 120])
def test_tables_keep_within_the_terminal(width: int, service: Operated) -> None:
    submit(service)
    for command in (
        "job list",
        "job show bert",
        "switch list",
        "policy show",
        "link list",
        "plan show",
    ):
        picture = service.pictured(*command.split(), width=width)
        assert max(map(len, picture)) <= width
        assert any("───" in line for line in picture)
        # What may take several lines does: nothing is cut.
        assert "…" not in "".join(picture)


# -- at a glance -----------------------------------------------------------------------------------


def test_status_on_one_screen(service: Operated) -> None:
    submit(service)
    with service.client() as client:
        settle(client)
    shown = service.good("status")
    for fact in (
        "fabric two_by_two",
        "term ",
        "4 ready",
        "1 installed",
        "register job bert, by operator",
    ):
        assert fact in shown
    assert "problems" not in shown
    assert json.loads(service.good("status", "--json"))["jobs_by_state"] == {"installed": 1}
    service.good("link", "drain", "leaf1", "spine1")
    service.good("link", "drain", "leaf1", "spine2", "--force")
    with service.client() as client:
        until(lambda: client.job("bert").state == "unplanned", "the job keeps its plan")
    result = service.run("status")
    assert result.exit_code == 1
    for fact in ("leaf1 - spine1, leaf1 - spine2", "1 unplanned", "job bert: ", "path"):
        assert fact in result.stdout
