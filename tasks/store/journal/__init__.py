"""The journal of paid calls, in SQLite or PostgreSQL, and leases on optimized systems."""
