"""Benchmarks of greenroom, as ratios to floors measured in the same run: `python -m benchmarks` in the repository's root, or `make bench`.

A time in microseconds says as much about the machine as about the code, so the targets are ratios: each repeat of a benchmark runs next to a repeat
of its floor, a comparable operation of plain asyncio (`asyncio_floors`). To add a benchmark, decorate a function in one of the modules that
`catalogue` lists.
"""
