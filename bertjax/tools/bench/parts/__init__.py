"""What the benches are made of: our side, the rivals' side, timing."""
