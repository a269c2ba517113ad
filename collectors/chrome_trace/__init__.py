"""Reading Chrome-trace JSON as Kineto writes it: bytes → events → columns → tables of one rank."""
