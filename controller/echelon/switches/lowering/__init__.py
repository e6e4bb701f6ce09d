"""Lowering: what each switch should hold, so that packets follow a plan.

In come a plan, a fabric and what each switch can do. Out comes an intent for each switch: table
entries, settings of queues, and digests. Begin with `lower`.
"""
