"""The vocabulary that everything shares: kinds of operations, operations, networks, and inputs. Needs no torch."""
