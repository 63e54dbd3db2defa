"""The ground floor: tables of recipes and products, names that all sides share, base models, plain text.

Imports nothing of the contract but itself.
"""
