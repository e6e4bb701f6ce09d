"""MeterConfig messages to and from the switch's two-rate three-colour markers."""

from __future__ import annotations

from finsy.proto import p4r

from softswitch.p4runtime.status import Code, RefusedError
from softswitch.stateful import MeterConfig

__all__ = ["meter_config", "meter_message"]


def meter_config(message: p4r.MeterConfig, place: str) -> MeterConfig:
    """Return the switch's form of `message`.

    Raises:
        RefusedError: INVALID_ARGUMENT for negative values, a peak below the committed rate, or an excess burst, which
            only single-rate meters have.
    """
    if min(message.cir, message.cburst, message.pir, message.pburst) < 0:
        raise RefusedError(Code.INVALID_ARGUMENT, f"{place}: a rate or burst is negative")
    if message.pir < message.cir:
        raise RefusedError(Code.INVALID_ARGUMENT, f"{place}: pir {message.pir} is below cir {message.cir}")
    if message.eburst:
        raise RefusedError(Code.INVALID_ARGUMENT, f"{place}: eburst is of single-rate meters, this one has two rates")
    return MeterConfig(message.cir, message.cburst, message.pir, message.pburst)


def meter_message(config: MeterConfig) -> p4r.MeterConfig:
    """Return `config` as a message."""
    return p4r.MeterConfig(
        cir=config.committed_rate,
        cburst=config.committed_burst,
        pir=config.peak_rate,
        pburst=config.peak_burst,
    )
