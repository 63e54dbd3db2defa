"""What users see of a plan and its results: the profile's status, progress, events, the answers of `why`.

The top room of the core: it imports the others, none of them imports it, and nothing here changes what is measured.
"""
