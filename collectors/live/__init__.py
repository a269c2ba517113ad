"""Records a job from inside its processes: hook of a training loop, handler of a profiler.

It never raises into the loop and never waits for another rank. Only torch and the standard library
are imported here.
"""
