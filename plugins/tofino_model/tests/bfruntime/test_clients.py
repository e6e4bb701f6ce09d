"""Clients: subscriptions, programs, and what the switch tells them unasked."""

from __future__ import annotations

import grpc
import pytest

from echelon_tofino.bfrt_proto import bfruntime_pb2 as bfrt
from plugins.tofino_model.tests.bfruntime.conftest import INFO, Client, Served

_Set = bfrt.SetForwardingPipelineConfigRequest


def _another(served: Served, client_id: int) -> Client:
    return Client(served.server.address, client_id, served.schema)


def _code(error: pytest.ExceptionInfo[grpc.RpcError]) -> str:
    name: str = error.value.code().name
    return name


def test_a_client_id_is_taken_until_its_client_has_gone(served: Served, client: Client) -> None:
    with _another(served, client.id) as other, pytest.raises(grpc.RpcError) as caught:
        other.subscribe()
    assert _code(caught) == "INVALID_ARGUMENT"


def test_a_program_has_one_client_at_a_time(served: Served, client: Client) -> None:
    with _another(served, 8) as other:
        assert other.subscribe().subscribe.status.code == 0
        with pytest.raises(grpc.RpcError) as caught:
            other.bind()
        assert _code(caught) == "ALREADY_EXISTS"
        other.bind("$SHARED")
        client.call.cancel()
        _eventually(other.bind)


def test_a_client_that_is_not_bound_names_the_program(served: Served) -> None:
    with _another(served, 3) as stranger:
        entry = stranger.entry("pipe.Ingress.forward", None)
        with pytest.raises(grpc.RpcError) as caught:
            stranger.read(entry)
        assert _code(caught) == "NOT_FOUND"
        assert stranger.read(entry, p4_name="small") == []
        with pytest.raises(grpc.RpcError) as caught:
            stranger.bind()
        assert _code(caught) == "UNAVAILABLE"


def test_the_descriptions_are_handed_out(client: Client) -> None:
    config = client.config()
    assert [(one.p4_name, one.bfruntime_info) for one in config.config] == [
        ("small", INFO.read_bytes())
    ]
    assert b"tf1.tm.queue.sched_cfg" in config.non_p4_config.bfruntime_info


def test_a_program_is_replaced_with_all_its_entries(served: Served, client: Client) -> None:
    client.insert(
        client.entry("pipe.Ingress.forward", {"hdr.ethernet.dst_addr": 1}, "Ingress.drop")
    )
    client.modify(
        client.entry("tf1.tm.queue.sched_cfg", {"pg_id": 0, "pg_queue": 8}, max_priority="5"),
        pipe=0,
    )
    config = bfrt.ForwardingPipelineConfig(p4_name="next", bfruntime_info=INFO.read_bytes())
    config.profiles.add(profile_name="pipe", context=b"{}", binary=b"assembly")
    client.configure(_Set.VERIFY, [config])
    client.configure(_Set.VERIFY_AND_WARM_INIT_BEGIN_AND_END, [config])
    kinds = [next(client.call).set_forwarding_pipeline_config_response for _ in range(2)]
    assert [kind.set_forwarding_pipeline_config_response_type for kind in kinds] == [
        bfrt.WARM_INIT_STARTED,
        bfrt.WARM_INIT_FINISHED,
    ]
    assert served.device.program is not None
    assert served.device.program.binary == b"assembly"
    with pytest.raises(grpc.RpcError):
        client.read(client.entry("pipe.Ingress.forward", None))
    client.bind("next")
    assert client.read(client.entry("pipe.Ingress.forward", None)) == []
    queue = client.read(client.entry("tf1.tm.queue.sched_cfg", {"pg_id": 0, "pg_queue": 8}), pipe=0)
    assert queue[0]["max_priority"] == "LOW"


@pytest.mark.parametrize(
    "text",
    [b"not JSON", b"[]", b'{"tables": [{"name": "t"}]}', b'{"tables": 3}'],
    ids=["text", "list", "table", "number"],
)
def test_a_program_that_cannot_be_read_changes_nothing(
    served: Served, client: Client, text: bytes
) -> None:
    config = bfrt.ForwardingPipelineConfig(p4_name="next", bfruntime_info=text)
    if text != b"[]":
        config.profiles.add()
    with pytest.raises(grpc.RpcError) as caught:
        client.configure(_Set.VERIFY_AND_WARM_INIT_BEGIN_AND_END, [config])
    assert _code(caught) == "INVALID_ARGUMENT"
    assert served.device.program is not None
    assert served.device.program.name == "small"


def test_digests_go_to_the_client_that_is_bound_to_the_program(
    served: Served, client: Client
) -> None:
    with _another(served, 8) as other:
        other.subscribe(learn=True)
        assert served.device.on_digest is not None
        with served.lock:
            served.device.on_digest(
                "pipe.IngressDeparser.flow_event",
                [
                    {"flow": 0xABC, "epoch": 1, "tstamp": 2},
                    {"flow": 3, "epoch": 4, "tstamp": 0xFFFFFFFF},
                ],
            )
        digest = next(client.call).digest
        assert digest.digest_id == served.schema.digests["pipe.IngressDeparser.flow_event"].id
        values = [
            [int.from_bytes(field.stream, "big") for field in data.fields] for data in digest.data
        ]
        assert values == [[0xABC, 1, 2], [3, 4, 0xFFFFFFFF]]
        assert [len(field.stream) for field in digest.data[0].fields] == [2, 1, 4]
        client.send(
            bfrt.StreamMessageRequest(
                client_id=7, digest_ack=bfrt.DigestListAck(list_id=digest.list_id)
            )
        )
        with pytest.raises(grpc.RpcError) as caught:
            next(client.call)
        assert _code(caught) == "UNIMPLEMENTED"


def test_clients_hear_of_ports(served: Served, client: Client) -> None:
    served.down.add(3)
    with served.lock:
        served.service.port_changed(3, False)
    told = next(client.call).port_status_change_notification
    assert not told.port_up
    assert client.shown(told.table_entry)["key"] == {"$DEV_PORT": 3}
    assert [
        client.read(client.entry("$PORT", {"$DEV_PORT": port}))[0]["$PORT_UP"] for port in (3, 4)
    ] == [False, True]


def test_a_message_that_cannot_be_decoded_is_refused(served: Served) -> None:
    with (
        grpc.insecure_channel(served.server.address) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        channel.unary_unary("/bfrt_proto.BfRuntime/Write")(b"\xff\xff", timeout=20)
    assert _code(caught) == "INVALID_ARGUMENT"


def _eventually(attempt: object) -> None:
    """Call until it does not raise: the switch has to notice first that a client has gone."""
    import time

    give_up_at = time.monotonic() + 20
    while True:
        try:
            attempt()  # type: ignore[operator]
        except grpc.RpcError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.01)
        else:
            return
