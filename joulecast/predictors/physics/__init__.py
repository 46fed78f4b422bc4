"""What an operation needs on a GPU at a clock before anything is learned: work, waves, least time, energy.

Features and constants change here, each with its source beside it; predictors that were trained with others become
unreadable or wrong. All of it follows from operations and data sheets; formats is the only room that may be imported.
"""
