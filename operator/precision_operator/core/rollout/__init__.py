"""Which node is measured now, and the Job for it: eligibility, triggers, limits, admission, cleanup, the plan.

From `Observed` to `Plan`. What a finished agent reported is read in `results`, what users see of a plan is made in
`status`: neither is imported here.
"""
