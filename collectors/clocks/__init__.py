"""How far the clocks of hosts are apart, asked over TCP beside a job."""
