"""Lower a plan and a fabric to what each switch should hold."""
