"""Journal of paid calls, leases on optimized systems, and shared rates."""
