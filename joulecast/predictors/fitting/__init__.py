"""From a recipe and datasets to a predictor. What only predicts imports nothing from here."""
