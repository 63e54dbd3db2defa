"""May this node take work? References that an owner saved, and the one decision against them."""
