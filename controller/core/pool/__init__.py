"""Arithmetic of idle reserved instances. Pure.

A Reserved Instance is a discount, which is lost while no instance uses it. AWS applies reservations by zone, by
instance type, or in units of instance size within a family. The reservations less all running instances give the spare
instances of a pool's type.

`controller.pool` reads the inputs, and sets desired capacities, or starts and tags the instances that the policy lists.
Leases in the table keep two clusters from claiming one reservation. An incomplete read changes nothing.
"""
