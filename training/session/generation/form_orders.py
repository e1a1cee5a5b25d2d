"""Makes the orders to form a generation, with its position and the sources from which members fetch the state. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from dyntrain.training.protocol.messages import Form, Source, WorkerHello
from dyntrain.training.protocol.slots import places
from dyntrain.training.session.generation.chains import plan_chains
from dyntrain.training.session.generation.generation import Generation
from dyntrain.training.session.generation.origin import Origin


def plan_formation(
    generation: Generation,
    workers: Mapping[str, WorkerHello],
    holders: Collection[str],
    environment_of: Callable[[str], dict[str, str]],
    token: str,
    origin: Origin,
    checkpoint_dir: str | None,
    segment_steps: int | None,
    clear: bool = False,
) -> dict[str, Form]:
    """Make each member's order to form the generation.

    The members in `holders` have the state in memory or as a safe state on their node; all other members fetch the
    state.
    """
    places_by_name = places(generation.instances)
    other_holders = [
        instance for instance in generation.instances if instance in holders and instance != generation.source
    ]
    receivers = [instance_id for instance_id in generation.instances if instance_id not in holders]
    source_names = plan_chains([generation.source, *other_holders], receivers)
    state_sources = {
        instance_id: Source(instance_id=instance_id, host=hello.private_ip, port=hello.state_port)
        for instance_id, hello in workers.items()
    }
    return {
        instance_id: Form(
            generation=generation.number,
            number=rank,
            workers=len(generation.members),
            cross_rank=places_by_name[instance_id].cross_rank,
            environment=environment_of(instance_id),
            position=generation.position,
            source=generation.source,
            transfer_token=token,
            sources=tuple(state_sources[name] for name in source_names.get(instance_id, ())),
            receivers=len(receivers),
            clear=clear,
            commit=origin.commit if instance_id == generation.source else None,
            safe=origin.safe if instance_id in holders else None,
            checkpoint_dir=checkpoint_dir,
            segment_steps=segment_steps,
        )
        for rank, instance_id in enumerate(generation.instances)
    }


def members_with_copies(
    generation: Generation,
    workers: Mapping[str, WorkerHello],
    origin: Origin,
    unreadable_copies: Collection[tuple[str, str]],
) -> set[str]:
    """Return the members that need not fetch the state.

    The source need not fetch the state, nor do members whose node has the origin's safe state in readable form.
    """
    members_with_copy = {
        instance_id
        for instance_id in generation.instances
        if (safe_copy := workers[instance_id].safe) is not None
        and safe_copy.name == origin.safe
        and (instance_id, safe_copy.name) not in unreadable_copies
    }
    return members_with_copy | {generation.source}
