"""Many servers under one roof: each kept alive by a supervisor of its own, all of them offered as one catalogue."""
