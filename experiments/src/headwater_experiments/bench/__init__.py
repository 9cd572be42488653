"""What explanations cost beside a prediction and beside other tools."""
