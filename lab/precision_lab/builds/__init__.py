"""Builds the cluster's programs from pinned Go modules, and image archives by the Dockerfile, into the user's cache.

Standard library only, so that it runs before anything is installed. Never: a running cluster.
"""
