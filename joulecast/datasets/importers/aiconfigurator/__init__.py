"""What LLM engines measure of their kernels (github.com/ai-dynamo/aiconfigurator): tables, plausibility, thinning."""
