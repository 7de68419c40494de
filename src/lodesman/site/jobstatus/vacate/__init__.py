"""Which jobs to vacate: what each costs, the exact cheapest set, and the plan. Pure."""
