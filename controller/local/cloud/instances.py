"""EC2 instances that behave as in AWS: state changes take time, emit events and appear late in describe calls. Each
running instance has a machine, which runs the instance's programs.

The class `Instances` holds the true states of instances; moto's instance objects show a new state after `describe_lag`
seconds. The methods of `Instances` hold the account's lock while they read or change instances.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dyntrain.controller.core.records.facts import InstanceState
from dyntrain.controller.local import events
from dyntrain.controller.local.account import Account
from dyntrain.controller.local.agenda import Agenda
from dyntrain.controller.local.cloud.past import PastStates
from dyntrain.controller.local.lambdas.bus import EventBus
from dyntrain.controller.local.machines.addresses import Addresses, loopback_addresses
from dyntrain.controller.local.machines.bare.machine import BareMachine, MachineResources
from dyntrain.controller.local.machines.identity import InstanceFacts, Signer, metadata_tree
from dyntrain.controller.local.machines.imds import MetadataTree
from dyntrain.controller.local.machines.job import job_command
from dyntrain.controller.local.machines.machine import Machine, MachinePlace
from dyntrain.controller.local.machines.namespaces import Namespaces
from dyntrain.controller.local.machines.volumes import VOLUME_PLACEHOLDER, Volumes
from dyntrain.controller.local.options import Options
from dyntrain.controller.local.spawner import Spawner
from dyntrain.controller.local.trace import CloudTrace
from moto.core.utils import utcnow
from moto.ec2.models.instances import StateReason

STATE_CODES: dict[InstanceState, int] = {
    "pending": 0,
    "running": 16,
    "shutting-down": 32,
    "terminated": 48,
    "stopping": 64,
    "stopped": 80,
}
OFF_POLL_SECONDS = 0.05  # between two checks whether a machine is off
MACHINE_CHECK_SECONDS = 0.25  # between two checks whether machines still run


@dataclass
class Instance:
    """An EC2 instance. `shown_state` is the state that describe calls show. `state_version` grows with each change of
    the state, so that a delayed action for a former state is not run.
    """

    instance_id: str
    address: str  # the private IP address
    state: InstanceState = "pending"
    shown_state: InstanceState = "pending"
    state_version: int = 0
    machine: Machine | None = None
    notice: tuple[str, float] | None = None  # (action, time) of a Spot interruption
    rebalance_at: float | None = None  # time of EC2's rebalance recommendation
    boot_count: int = field(default=0)
    is_rebooting: bool = False  # whether the machine is shut down for a reboot


class Instances:
    def __init__(
        self,
        account: Account,
        agenda: Agenda,
        bus: EventBus,
        spawner: Spawner,
        trace: CloudTrace,
        options: Options,
        endpoint: str,
        port: int,
        state_dir: Path,
        network: Namespaces | None,
        signer: Signer,
        past: PastStates,
    ) -> None:
        self._account = account
        self._agenda = agenda
        self._bus = bus
        self._spawner = spawner
        self._trace = trace
        self._options = options
        self._endpoint = endpoint
        self._network = network
        self._addresses = Addresses(loopback_addresses(port) if network is None else network.addresses)
        self._state_dir, self._volumes = state_dir, Volumes(state_dir)
        self._instances: dict[str, Instance] = {}
        self._stopped = False
        self._past = past
        self.signer = signer
        self.on_state_change: Callable[[str, InstanceState], None] = lambda instance_id, state: None
        self.on_recommendation: Callable[[str], None] = lambda instance_id: None
        self.lifecycle_target: Callable[[str], str | None] = lambda instance_id: None

    def start(self) -> None:
        self._check_machines()

    def stop(self) -> None:
        """Switch every machine off and close the port of every metadata service."""
        with self._account.lock:
            self._stopped = True
            machines = [instance.machine for instance in self._instances.values() if instance.machine is not None]
        for machine in machines:
            machine.cut_power()
        for machine in machines:
            machine.close()

    def known_ids(self) -> set[str]:
        with self._account.lock:
            return set(self._instances)

    def state(self, instance_id: str) -> InstanceState | None:
        """The true state of an instance, which describe calls show later, or None if the instance does not exist."""
        with self._account.lock:
            instance = self._instances.get(instance_id)
            return None if instance is None else instance.state

    def machine(self, instance_id: str) -> Machine | None:
        with self._account.lock:
            instance = self._instances.get(instance_id)
            return None if instance is None else instance.machine

    def on_launch(self, instance_id: str) -> None:
        """Give an address to an instance that moto has just launched, and boot the instance."""
        with self._account.lock:
            instance = self._instances[instance_id] = Instance(instance_id, self._addresses.take_address())
            self._past.record_launch(instance_id)
            self._complete_moto_instance(instance)
            self._write_moto_state(instance, "pending")
            self._enter_state(instance, "pending")
            self._agenda.run_after(self._options.boot_delay, self._unless_state_changed(instance, self._boot_instance))

    def on_terminate(self, instance_id: str) -> None:
        """Shut down the machine of an instance that moto has already terminated. The instance is first shutting-down,
        and terminated when the machine is off, as in EC2.
        """
        self._begin_shutdown(instance_id, "shutting-down", self._enter_terminated_state)

    def on_stop(self, instance_id: str) -> None:
        self._begin_shutdown(instance_id, "stopping", self._enter_stopped_state)

    def on_start(self, instance_id: str) -> None:
        with self._account.lock:
            instance = self._instances[instance_id]
            self._write_moto_state(instance, instance.shown_state)
            if instance.state == "stopped":
                self._moto_instance(instance_id).launch_time = utcnow()  # the launch time of this start
                self._enter_state(instance, "pending")
                self._agenda.run_after(
                    self._options.boot_delay, self._unless_state_changed(instance, self._boot_instance)
                )

    def on_reboot(self, instance_id: str) -> None:
        """Shut the instance's machine down and boot the machine again from its disk. During the reboot, describe calls
        show the state running, as in EC2.
        """
        with self._account.lock:
            instance = self._instances[instance_id]
            self._write_moto_state(instance, instance.shown_state)
            if instance.state == "running" and instance.machine is not None:
                instance.is_rebooting = True
                instance.machine.shut_down()  # `_check_machines` then boots the machine again

    def on_profile_replaced(self, association_id: str) -> None:
        """Write the new IAM instance profile into moto's instance object. Without the new profile in moto's object,
        describe calls would still show the former profile.
        """
        with self._account.lock:
            for association in self._account.ec2.iam_instance_profile_associations.values():
                if association.association_id == association_id:
                    association.instance.iam_instance_profile = {
                        "Arn": association.iam_instance_profile.arn,
                        "Id": association_id,
                    }

    def interrupt_spot(self, instance_id: str, seconds: float) -> None:
        """Interrupt a Spot instance. The interruption notice appears at once in the machine's metadata service, and is
        published as an event. The instance is terminated `seconds` after the notice.
        """
        with self._account.lock:
            self._instances[instance_id].notice = ("terminate", time.time() + seconds)
            self._bus.publish(events.spot_interruption(self._bus.origin(), instance_id, "terminate"))
        self._agenda.run_after(seconds, lambda: self._end_spot_instance(instance_id))

    def recommend_rebalance(self, instance_id: str) -> None:
        with self._account.lock:
            self._instances[instance_id].rebalance_at = time.time()
            self._bus.publish(events.rebalance_recommendation(self._bus.origin(), instance_id))
            self.on_recommendation(instance_id)

    def _end_spot_instance(self, instance_id: str) -> None:
        with self._account.lock:
            if self._instances[instance_id].state not in ("shutting-down", "terminated"):
                self._account.ec2.terminate_instances([instance_id])
                self._set_state_reason(instance_id, "Server.SpotInstanceTermination")
                self.on_terminate(instance_id)

    def _handle_machine_off(self, instance: Instance) -> None:
        """Stop or terminate the instance of a machine that switched itself off, depending on the instance's shutdown
        behaviour.
        """
        ec2_backend, shutdown_behaviour = (
            self._account.ec2,
            self._moto_instance(instance.instance_id).instance_initiated_shutdown_behavior,
        )
        self._trace.write("machine-off", instance=instance.instance_id, behaviour=str(shutdown_behaviour))
        if shutdown_behaviour == "terminate":
            ec2_backend.terminate_instances([instance.instance_id])
            self.on_terminate(instance.instance_id)
        else:
            ec2_backend.stop_instances([instance.instance_id])
            self.on_stop(instance.instance_id)
        self._set_state_reason(instance.instance_id, "Client.InstanceInitiatedShutdown")

    def _set_state_reason(self, instance_id: str, code: str) -> None:
        """Set the reason for the instance's state
        (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html).
        """
        self._moto_instance(instance_id).state_reason = StateReason(f"{code}: set by the embedded cloud", code)

    # ---- states

    def _unless_state_changed(self, instance: Instance, action: Callable[[Instance], None]) -> Callable[[], None]:
        """Return a function that the agenda can run later. The returned function runs `action`, unless the instance's
        state has changed since this call or the embedded cloud has stopped.
        """
        state_version = instance.state_version

        def run_unless_changed() -> None:
            with self._account.lock:
                if instance.state_version == state_version and not self._stopped:
                    action(instance)

        return run_unless_changed

    def _enter_state(self, instance: Instance, state: InstanceState) -> None:
        instance.state = state
        instance.state_version += 1
        self._agenda.run_after(self._options.describe_lag, lambda: self._show_state(instance, state))
        self._bus.publish(events.state_change(self._bus.origin(), instance.instance_id, state))
        self.on_state_change(instance.instance_id, state)

    def _show_state(self, instance: Instance, state: InstanceState) -> None:
        with self._account.lock:
            self._write_moto_state(instance, state)

    def _write_moto_state(self, instance: Instance, state: InstanceState) -> None:
        instance.shown_state = state
        moto_state = self._moto_instance(instance.instance_id)._state
        moto_state.name, moto_state.code = state, STATE_CODES[state]

    def _boot_instance(self, instance: Instance) -> None:
        self._power_on(instance)
        self._enter_state(instance, "running")

    def _begin_shutdown(self, instance_id: str, state: InstanceState, when_off: Callable[[Instance], None]) -> None:
        with self._account.lock:
            instance = self._instances[instance_id]
            self._write_moto_state(instance, instance.shown_state)
            if instance.state in ("pending", "running") or (
                state == "shutting-down" and instance.state in ("stopping", "stopped")
            ):
                if instance.machine is not None:
                    instance.machine.shut_down()
                self._enter_state(instance, state)
                self._wait_until_off(instance, when_off)

    def _wait_until_off(self, instance: Instance, when_off: Callable[[Instance], None]) -> None:
        if instance.machine is not None and instance.machine.is_on:
            self._agenda.run_after(
                OFF_POLL_SECONDS,
                self._unless_state_changed(instance, lambda current: self._wait_until_off(current, when_off)),
            )
            return
        if instance.machine is not None:
            instance.machine.close()
            instance.machine = None
        when_off(instance)

    def _enter_terminated_state(self, instance: Instance) -> None:
        if self._network is not None:
            self._network.remove(instance.instance_id)
        self._addresses.release_address(instance.address)
        self._enter_state(instance, "terminated")

    def _enter_stopped_state(self, instance: Instance) -> None:
        self._enter_state(instance, "stopped")

    # ---- machines

    def _power_on(self, instance: Instance) -> None:
        if not self._options.machines:
            return
        machine_root = self._state_dir / "machines" / instance.instance_id
        user_data = self._user_data(instance.instance_id)
        job_program = job_command(user_data, machine_root)
        runs_bootstrap = "node_bootstrap" in user_data
        volume, machine_place = self._volumes.create_folder_for(user_data), self._create_place(instance)
        unit_arguments = (self._options.machine_command or ()) if runs_bootstrap else ()
        command = job_program or tuple(
            str(volume) if argument == VOLUME_PLACEHOLDER else argument for argument in unit_arguments
        )
        machine = self._create_bare_machine(instance, machine_root, machine_place, volume) or Machine(
            self._spawner,
            machine_root,
            command,
            self._endpoint,
            self._options.machine_stop,
            lambda: self._metadata_tree(instance),
            machine_place,
            off_with_program=bool(job_program),
        )
        machine.start()
        instance.machine = machine
        instance.boot_count += 1
        log_link = self._state_dir / "logs" / f"machine-{instance.instance_id}.log"
        if not log_link.is_symlink():
            log_link.symlink_to(machine.console_path)
        link_name = None if self._network is None else self._network.link_of(instance.instance_id)
        self._trace.write(
            "machine",
            instance=instance.instance_id,
            address=instance.address,
            link=link_name,
            pid=machine.pid,
            command=list(command),
        )

    def _create_bare_machine(
        self, instance: Instance, machine_root: Path, machine_place: MachinePlace, volume: Path
    ) -> Machine | None:
        image, network = self._options.bare, self._network
        if image is None or network is None:
            return None
        resources = MachineResources(image, volume, network, instance.instance_id)
        return BareMachine(
            self._spawner,
            machine_root,
            self._endpoint,
            self._options.machine_stop,
            lambda: self._metadata_tree(instance),
            machine_place,
            resources,
        )

    def _create_place(self, instance: Instance) -> MachinePlace:
        """The place (this host or a network namespace) where the instance's machine boots. With network namespaces, the
        first boot creates a host, which exists until the instance is terminated.
        """

        def tokens_required() -> bool:
            with self._account.lock:
                return bool(self._moto_instance(instance.instance_id).metadata_options.http_tokens == "required")

        if self._network is None:
            return MachinePlace(tokens_required=tokens_required)
        command_prefix = self._network.command_prefix(instance.instance_id, instance.address)
        return MachinePlace(self._network.gateway, command_prefix, tokens_required)

    def _check_machines(self) -> None:
        """Boot each machine again that was shut down for a reboot, or whose init process was killed (as by a kernel
        panic). Stop or terminate the instance of each machine that switched itself off.
        """
        with self._account.lock:
            if self._stopped:
                return
            for instance in self._instances.values():
                if instance.state != "running" or instance.machine is None or instance.machine.is_on:
                    continue
                if instance.machine.switched_itself_off:
                    self._handle_machine_off(instance)
                else:
                    trace_kind = "machine-reboots" if instance.is_rebooting else "machine-died"
                    self._trace.write(trace_kind, instance=instance.instance_id)
                    instance.is_rebooting = False
                    instance.machine.close()
                    self._power_on(instance)
        self._agenda.run_after(MACHINE_CHECK_SECONDS, self._check_machines)

    def _metadata_tree(self, instance: Instance) -> MetadataTree:
        with self._account.lock:
            moto_instance = self._moto_instance(instance.instance_id)
            shows_tags = moto_instance.metadata_options.instance_metadata_tags == "enabled"
            facts = InstanceFacts(
                instance_id=instance.instance_id,
                image_id=moto_instance.image_id,
                instance_type=moto_instance.instance_type,
                address=instance.address,
                zone=str(moto_instance.availability_zone),
                region=self._account.region,
                account=self._account.number,
                launched_at=moto_instance.launch_time.timestamp(),
                tags=self._account.instance_tags(instance.instance_id) if shows_tags else None,
                target_state=self.lifecycle_target(instance.instance_id),
                notice=instance.notice,
                rebalance_at=instance.rebalance_at,
                user_data=self._user_data(instance.instance_id),
                launch_index=int(moto_instance.ami_launch_index),
            )
        return metadata_tree(facts, self.signer, time.time())

    # ---- moto's objects

    def _moto_instance(self, instance_id: str) -> Any:
        return self._account.ec2.get_instance(instance_id)

    def _user_data(self, instance_id: str) -> str:
        encoded_user_data = self._moto_instance(instance_id).user_data
        return "" if encoded_user_data is None else str(encoded_user_data.decode())

    def _complete_moto_instance(self, instance: Instance) -> None:
        """Complete moto's instance object with the embedded cloud's address, and with the metadata options and the IAM
        instance profile of the launch template.
        """
        moto_instance = self._moto_instance(instance.instance_id)
        for interface in moto_instance.nics.values():
            interface.private_ip_address = instance.address
            interface.private_ip_addresses = [{"Primary": True, "PrivateIpAddress": instance.address}]
        tags = self._account.instance_tags(instance.instance_id)
        template_id = tags.get("aws:ec2launchtemplate:id")
        if template_id is None:
            return
        template_version = self._account.ec2.get_launch_template(template_id).get_version(
            tags["aws:ec2launchtemplate:version"]
        )
        if profile_arn := template_version.data.get("IamInstanceProfile", {}).get("Arn"):
            self._account.ec2.associate_iam_instance_profile(instance.instance_id, iam_instance_profile_arn=profile_arn)
        metadata_options = template_version.data.get("MetadataOptions", {})
        if moto_instance.metadata_options.http_tokens == "optional":
            moto_instance.metadata_options.http_tokens = metadata_options.get("HttpTokens", "optional")
        if moto_instance.metadata_options.instance_metadata_tags == "disabled":
            moto_instance.metadata_options.instance_metadata_tags = metadata_options.get(
                "InstanceMetadataTags", "disabled"
            )
