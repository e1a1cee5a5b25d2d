"""The arithmetic by which pools lend idle reserved instances to clusters. Pure.

A Reserved Instance is a discount, which is lost while no instance uses it. AWS applies a reservation by zone, by
instance type, or in units of instance size within an instance family. The number of spare instances for a pool is the
number of reserved instances of its type minus the number of running instances that use the reservations.

The package `controller.pool` reads the inputs from AWS. It then sets the desired capacities of groups, or starts and
tags the instances that the policy lists. Claims with a lease, stored in the DynamoDB table, prevent two clusters from
using the same reservation. If a read is incomplete, no pool is changed.
"""
