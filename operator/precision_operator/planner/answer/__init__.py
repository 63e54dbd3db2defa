"""The answer: one function from spec and fleet to a plan, what-if questions, odds, the status document and the page.

Sentences and figures are made here, and nowhere below.
"""
