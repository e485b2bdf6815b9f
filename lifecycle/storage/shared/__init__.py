"""State that several machines share: small objects by their keys, changed only as they were read, and leases."""
