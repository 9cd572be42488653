"""What the functions give back: values, with no model behind them."""
