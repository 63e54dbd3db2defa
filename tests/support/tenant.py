"""A namespace of another tenant, beside that of the end-to-end tests: its rights come and go, and it is deleted."""

TENANT = "tenant"
