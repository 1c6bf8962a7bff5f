"""The RPC edge: servers, clients, identity, errors, deadlines, paging and watches."""
