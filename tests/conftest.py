"""What all tests share: the fixtures of a real control plane, and the option that makes skipping a failure."""

pytest_plugins = ["tests.support.cluster", "tests.support.only_skip"]
