"""Which jobs to vacate: what each would cost, the exact cheapest set, and the plan that says so. Pure."""
