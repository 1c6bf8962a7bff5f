"""Generated contracts (`tenure.<service>.v1`, owned by `make gen`) and the SDK `tenure.client`."""
