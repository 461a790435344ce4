"""What greenroom costs, beside floors measured in the same run. `python -m benchmarks` from the repository's root, or `make bench`.

A time in microseconds says as much about the machine as about the code, so what counts here are ratios: each repeat of
a benchmark runs next to a repeat of its floor, a thing that any asyncio program does (`floors`), and the target is a
ratio to that. To add a benchmark, decorate a function in one of the modules that `catalogue` lists.
"""
