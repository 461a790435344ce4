"""A supervision tree in the terminal, with a theatre as its example: workers are killed at random and restarted.

`python -m examples.demo.theatre` runs it. `supervision_tree` is the tree, `event_log` records the node's reports, `tree_picture` draws
both as text, `terminal_screen` shows the picture, and `simulation` runs everything for some seconds and kills workers.
"""
