"""A plug-in for Headwater: one of each thing that can be added from outside."""
