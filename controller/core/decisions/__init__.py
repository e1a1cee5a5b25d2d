"""Decisions that follow from the nodes' views: statuses, leaving nodes, replacements, and actions on AWS."""
