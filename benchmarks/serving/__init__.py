"""The cost of calls over HTTP and stdio: a server on one core, a load generator on the other, beside peers and a floor.

`wire` is the generator's HTTP client, `load` keeps connections busy and takes the times, `processes` starts servers on their core, `contenders` lists
them, `contest` runs the rounds, `blast_radius` compares the damage of faulty tools. `programs` are our servers and the floors; `peers` run in their
own
environments, which `make` builds from their lock files.
"""
