"""Attacks by streams: silent ones, backups, and roles of strangers, which write and replace."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import grpc
from finsy.proto import U128, p4r

from tests.soak.attacks.target import Peer, Target, Telling, answer_text, product_config

IDLE = 60
BACKUPS = 16
DELETE_EVERY_S = 0.3
_LOOK_EVERY_S = 0.3
PUSH_EVERY_S = 2.0
ROLE = "stranger"


def hold_idle(target: Target, tell: Telling) -> None:
    """Hold streams that say nothing, all over one connection, and open those anew that end."""
    with Peer(target) as peer:
        _hold_silent([peer] * IDLE, tell)


def hold_idle_apart(target: Target, tell: Telling) -> None:
    """Hold streams that say nothing, each over a connection of its own."""
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(target)) for _ in range(IDLE)]
        _hold_silent(peers, tell)


def _hold_silent(peers: Sequence[Peer], tell: Telling) -> None:
    held = [peer.stream()[0] for peer in peers]
    tell("hold", f"{len(held)} silent streams")
    while True:
        time.sleep(_LOOK_EVERY_S)
        for number, answers in enumerate(held):
            if answers.done():
                tell("a silent stream", _ended(answers))
                held[number] = peers[number].stream()[0]


def hold_backups(target: Target, tell: Telling) -> None:
    """Hold backups of the default role, with the lowest election ids."""
    with Peer(target) as peer:
        held = [peer.claim(election_id) for election_id in range(1, BACKUPS + 1)]
        for answers in held:
            tell("a backup", _first(answers))
        while True:
            time.sleep(_LOOK_EVERY_S)


def delete_entries(target: Target, tell: Telling) -> None:
    """Delete all entries again and again, as the primary of another role."""
    with Peer(target) as peer:
        answers = peer.claim(1, ROLE)
        tell("claim a role", _first(answers))
        entries = peer.entries()
        request = p4r.WriteRequest(
            device_id=target.device_id, role=ROLE, election_id=U128.encode(1)
        )
        for entity in entries:
            update = request.updates.add()
            update.type = p4r.Update.DELETE
            update.entity.CopyFrom(entity)
        deletion = request.SerializeToString()
        while True:
            tell.call(f"delete {len(entries)} entries", partial(peer.call, "Write", deletion))
            time.sleep(DELETE_EVERY_S)


def replace_pipeline(target: Target, tell: Telling) -> None:
    """Replace the pipeline again and again, as the primary of another role."""
    config = product_config()
    config.cookie.cookie = 77
    with Peer(target) as peer:
        # A stream lives as long as what reads it.
        answers = peer.claim(1, ROLE)
        tell("claim a role", _first(answers))
        while True:
            tell.call("replace the pipeline", partial(_push, peer, config))
            time.sleep(PUSH_EVERY_S)


def _push(peer: Peer, config: p4r.ForwardingPipelineConfig) -> None:
    peer.push(config, 1, ROLE)


def _first(answers: Any) -> str:
    """Return the first answer on a stream."""
    try:
        answer = next(answers)
    except grpc.RpcError as error:
        return answer_text(error)
    update = p4r.StreamMessageResponse.FromString(answer)
    status = update.arbitration.status
    return f"code {status.code} {status.message}" if status.code else "primary"


def _ended(answers: Any) -> str:
    with suppress(StopIteration):
        try:
            next(answers)
        except grpc.RpcError as error:
            return answer_text(error)
    return "ended"
