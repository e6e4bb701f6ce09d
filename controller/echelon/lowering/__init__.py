"""Plan and fabric -> what each switch should hold."""
