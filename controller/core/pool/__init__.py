"""The arithmetic that decides how many idle reserved instances each pool lends to its cluster. Pure.

A Reserved Instance is a discount that is lost while no running instance matches the Reserved Instance. AWS applies a
reservation by zone, by instance type, or in units of instance size within an instance family. The number of spare
instances for a pool is the number of reserved instances of its type minus the number of running instances that use the
reservations.

The package `controller.pool` reads the inputs from AWS. The package `controller.pool` also applies the decisions: it
sets the desired capacities of Auto Scaling groups, or starts and tags the instances that the policy lists. Claims with
a lease, stored in the DynamoDB table, prevent two clusters from using the same reservation. If the inputs cannot be
read completely, no pool is changed.
"""
