"""MeterConfig messages to and from the switch's meters."""

from __future__ import annotations

from finsy.proto import p4r

from softswitch.p4runtime.p4info import MeterKind
from softswitch.rpc.status import Code, RefusedError
from softswitch.stateful import MeterConfig

__all__ = ["meter_config", "meter_message", "refuse_counters"]


def meter_config(
    message: p4r.MeterConfig,
    kind: MeterKind,
    place: str,
) -> MeterConfig:
    """Return `message` in the switch's form.

    Raises:
        RefusedError: INVALID_ARGUMENT for negative values, a peak below the committed rate, an
            excess burst for a meter that has none, or a peak that differs from the committed rate
            if there is only one rate.
    """
    committed = (message.cir, message.cburst)
    peak = (message.pir, message.pburst)
    if min(*committed, *peak, message.eburst) < 0:
        raise RefusedError(Code.INVALID_ARGUMENT, f"{place}: a rate or burst is negative")
    if kind is MeterKind.TWO_RATE_THREE_COLOR:
        if message.pir < message.cir:
            raise RefusedError(
                Code.INVALID_ARGUMENT, f"{place}: pir {message.pir} is below cir {message.cir}"
            )
    elif peak != committed:
        raise RefusedError(
            Code.INVALID_ARGUMENT,
            f"{place}: the meter has one rate, so pir and pburst must equal cir and cburst",
        )
    excess = None
    if kind is MeterKind.SINGLE_RATE_THREE_COLOR:
        excess = message.eburst
    elif message.eburst:
        raise RefusedError(
            Code.INVALID_ARGUMENT, f"{place}: only single-rate three-colour meters have an eburst"
        )
    return MeterConfig(*committed, *peak, excess)


def meter_message(config: MeterConfig) -> p4r.MeterConfig:
    """Return `config` as a message."""
    return p4r.MeterConfig(
        cir=config.committed_rate,
        cburst=config.committed_burst,
        pir=config.peak_rate,
        pburst=config.peak_burst,
        eburst=config.excess_burst or 0,
    )


def refuse_counters(entity: p4r.MeterEntry | p4r.DirectMeterEntry) -> None:
    """Raise RefusedError for an entity that has counters per colour."""
    if entity.HasField("counter_data"):
        raise RefusedError(
            Code.UNIMPLEMENTED, "meters do not count packets per colour on this switch"
        )
