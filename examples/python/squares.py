"""Runs a function of this very file under leases, a lease a call."""

from tenure.client import LeaseExecutor, connect


def square(number: int) -> int:
    return number * number


if __name__ == "__main__":
    with connect() as plane, LeaseExecutor(plane, cpu="0.2", memory="128Mi") as executor:
        print(list(executor.map(square, range(5))))
