"""What a pool is worked out from, in few words: what was bought, what runs, who may take how much."""

from __future__ import annotations

from typing import Any

from dyntrain.controller.core.pool.inputs import Capacity, Claim, Inputs, Pool, Reserved, Usage
from dyntrain.controller.core.pool.plan import Plan, PoolDecision, plan_pools

NOW = 1_700_000_000.0
LATER = NOW + 30 * 86_400.0
A, B = "eu-central-1a", "eu-central-1b"


def bought(instance_type: str, count: int, zone: str | None = None, **more: Any) -> Reserved:
    return Reserved(
        **{
            "id": f"ri-{instance_type}-{zone}-{count}",
            "instance_type": instance_type,
            "count": count,
            "zone": zone,
            "end": LATER,
            **more,
        }
    )


def slots(instance_type: str, total: int, available: int, zone: str = A, **more: Any) -> Capacity:
    return Capacity(
        **{"id": "cr-1", "instance_type": instance_type, "zone": zone, "total": total, "available": available, **more}
    )


def runs(instance_type: str, count: int = 1, zone: str = A, **more: Any) -> Usage:
    return Usage(instance_type=instance_type, count=count, zone=zone, **more)


def a_pool(instance_type: str, cluster: str = "demo", **more: Any) -> Pool:
    """Decides at once, in zone a, within 0 and 100."""
    return Pool(**{"cluster": cluster, "instance_type": instance_type, "zone": A, "max": 100, "readings": 1, **more})


def claimed(pool: Pool, count: int, **more: Any) -> Claim:
    return Claim(
        **{
            "count": count,
            "instance_type": pool.instance_type,
            "zone": pool.zone,
            "since": NOW - 60,
            "expires": NOW + 60,
            **more,
        }
    )


def planned(*lines: Reserved | Capacity | Usage, pools: tuple[Pool, ...], **more: Any) -> Plan:
    return plan_pools(
        Inputs(
            at=NOW,
            reserved=tuple(line for line in lines if isinstance(line, Reserved)),
            capacity=tuple(line for line in lines if isinstance(line, Capacity)),
            usage=tuple(line for line in lines if isinstance(line, Usage)),
            pools=pools,
            **more,
        )
    )


def only(*lines: Reserved | Capacity | Usage, pool: Pool, **more: Any) -> PoolDecision:
    (decision,) = planned(*lines, pools=(pool,), **more).decisions
    return decision


def step(pool: Pool, claim: Claim | None, reserved: int, at: float) -> PoolDecision:
    claims = {"demo": claim} if claim is not None else {}
    return plan_pools(
        Inputs(at=at, reserved=(bought("c5.large", reserved),) if reserved else (), pools=(pool,), claims=claims)
    ).decisions[0]


def followed(pool: Pool, spares: list[int], seconds: float = 60.0) -> list[int]:
    """The pool's sizes when reservations of those sizes are read one after the other."""
    sizes, claim = [], None
    for number, spare in enumerate(spares):
        decision = step(pool, claim, spare, NOW + number * seconds)
        claim, pool = decision.claim, pool.model_copy(update={"current": decision.target})
        sizes.append(decision.target)
    return sizes
