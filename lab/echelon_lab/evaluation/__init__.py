"""The evaluation: every policy on random scenarios, compared with `fair` and with the physical
limit.
"""
