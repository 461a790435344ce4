"""What a call costs over the wire: a server on one core, a load generator on the other, beside peers and a floor in the same run.

`wire` is the generator's side of HTTP, `load` keeps connections busy and takes the times, `processes` starts servers on their
core, `contenders` lists them, `contest` holds the rounds, `blast` compares what dies with a tool. `programs` are the servers
of ours and the floors; `peers` are those that run in an environment of their own, which `make` builds from its lock.
"""
