"""What reads the hardware beside the timed work: identity, health, power. A sensor that is absent says so by name."""
