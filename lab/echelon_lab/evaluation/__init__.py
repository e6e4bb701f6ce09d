"""The evaluation of policies on random scenarios, against `fair` and the physical limit."""
