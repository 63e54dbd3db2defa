"""Does each security claim's test fail when its protection is taken out? `python -m tests.security.controls`

Each control takes one protection out of a copy of the tree, and demands that the tests that docs/security.md names for
it fail by an assertion. It prints what became of each.
"""
