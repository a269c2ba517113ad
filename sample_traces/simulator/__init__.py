"""The simulator of training jobs: operations, the engine that times them, jobs, and trace files.

There is one simulator; a new kind of job adds operations and programs to it. It knows no detector.
"""
