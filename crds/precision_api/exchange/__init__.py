"""What travels between operator and agent: the request, the result, its summary, exit codes and progress lines.

Both sides read and write the same values here. No resource of Kubernetes is known here.
"""
