"""What NCCL, RCCL and their test programs print as text: read in one pass, into tables by rank."""
