"""What tests share: builders with defaults, fakes of the narrow protocols, and the real cluster's fixtures."""
