"""Behaviours: GenServer, routines, tasks and blocking threads, with the calls and starts that they share."""
