"""How the ports of a switch serve their queues under the plan of a running service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echelon_site.switch_config.queues import QueueError, QueueService, QueueServices

if TYPE_CHECKING:
    from echelon.controller.resources.switches import IntentResource


def services_of(intent: IntentResource) -> QueueServices:
    """Return how every port serves its queues.

    Raises `QueueError` if ports differ, or if a queue has a rate: classes of fixed-function
    switches are the same everywhere, and have none.
    """
    by_port: dict[int, dict[int, QueueService]] = {}
    for setting in intent.queues:
        if setting.min_rate_bps or setting.max_rate_bps is not None:
            raise QueueError(
                f"queue {setting.queue} of port {setting.port} has a rate in the plan, and only"
                " levels and weights can be said (choose a policy that gives classes, such as"
                " crux)"
            )
        queues = by_port.setdefault(setting.port, {})
        queues[setting.queue] = QueueService(setting.level, setting.weight)

    services = []
    for queues in by_port.values():
        services.append(tuple(service for _, service in sorted(queues.items())))
    if len(set(services)) != 1:
        raise QueueError(
            "the plan serves the queues of its ports differently, and one way for all can be said"
            " (choose a policy that gives classes, such as crux)"
        )
    return services[0]
