"""What a plan reads: the spec as terms with units, the fleet as one document, the time that the plan has.

Whatever is wrong with it is a problem with a field and a remedy. No rate is computed here.
"""
