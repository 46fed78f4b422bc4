"""From predicted operations to the prediction of a network: composition, clocks, and the prediction itself."""
