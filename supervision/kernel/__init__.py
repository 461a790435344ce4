"""The kernel: processes, pids, exit signals, mailboxes, links and monitors, names, timers, the clock and the node."""
