"""Servers that run in this project's own environment, each started as a program: `PYTHON -m … PORT OPTION…`."""
