"""A theatre in the terminal: a living tree whose workers are killed at random and come back.

`python -m examples.demo.theatre` plays it. `company` is the tree, `mishaps` is who kills, `book` keeps what the reports tell,
`picture` makes lines of that, `show` is what brings all of them together for so many seconds.
"""
