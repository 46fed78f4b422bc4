"""MLflow: tracking of trainings, and the registry of models with its champions."""
