"""Studies of delay equations, whose delays are known: forecasts of one, and an echo that is to be cancelled."""
