"""The supervisors: child specs, strategies, intensity, and the processes that apply them."""
