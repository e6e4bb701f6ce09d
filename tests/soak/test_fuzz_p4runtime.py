"""A short run of the P4Runtime fuzzer; the whole one is `python -m tests.soak p4runtime`."""

from __future__ import annotations

from tests.soak.fuzz_p4runtime import Attacker, running


def test_every_message_gets_a_status_and_the_switch_goes_on() -> None:
    with running() as switch:
        attacker = Attacker(switch.address, switch.process.pid, seed=7)
        attacker.run(300)
    outcome = attacker.outcome
    assert outcome.wrong == []
    kinds = {kind for kind, _ in outcome.statuses}
    assert kinds >= {
        "Write",
        "Read",
        "StreamChannel",
        "SetForwardingPipelineConfig",
        "gNMI Get",
        "gNMI Set",
    }
    assert {status for kind, status in outcome.statuses if kind == "Write"} >= {
        "OK",
        "UNKNOWN",
        "PERMISSION_DENIED",
    }
    assert outcome.statuses.total() == 300
