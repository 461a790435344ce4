"""The pytest plugin that greenroom installs: the testing kit's fixtures and options, for everybody's tests."""
