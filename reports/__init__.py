"""Reports: everything a person sees, drawn from a `Result` alone, without the run or Polars."""
