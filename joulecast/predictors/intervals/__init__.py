"""How far a prediction may be off: errors on what was held out, looked up for one request.

How errors are grouped, scaled and ranked changes here; how they are collected is in `evaluation.calibrating`. It may
import the rooms formats and physics.
"""
