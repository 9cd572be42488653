"""The rules of attention: fused, written out, with a cap or sinks; and which part of it is held constant."""
