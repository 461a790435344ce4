"""What a process is: pids, signals, mailboxes, links and monitors, names, timers, the clock and the node."""
