"""The custom resources as pydantic models, and the generator of their CustomResourceDefinitions.

The top floor of the contract: nothing else of it imports this.
"""
