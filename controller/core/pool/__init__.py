"""The arithmetic of idle reserved instances. Pure.

A Reserved Instance is a discount that idles when nobody uses it. Reservations in units of their size, exactly as AWS
applies them (zonal, inflexible by type, flexible by family), less everything that runs, give whole spare instances of a
pool's type. `controller.pool` gathers the inputs in one consistent read and acts through desired capacity, or by
starting and tagging the instances that the policy lists. Leases in the table keep two clusters from claiming one
reservation; a partial read changes nothing.
"""
