"""The other side of the interop test: the literal etcd3 0.12.0, told what to do line by line.

Runs in a virtual environment of its own (etcd3 wants protobuf < 4), so it may import nothing of
ours. Each line on standard input is a JSON list [command, argument …] and is answered by a line.
"""

import json
import sys

import etcd3

HOST, PORT = sys.argv[1].split(":")
CLIENT = etcd3.client(host=HOST, port=int(PORT), timeout=5)
HELD = {}


def version():
    import google.protobuf

    return [etcd3.__version__, google.protobuf.__version__]


def candidates(name):
    """Return the keys of an election in the order in which they will lead."""
    found = CLIENT.get_prefix(name + "/", sort_order="ascend", sort_target="create")
    return [
        [facts.key.decode(), value.decode(), facts.create_revision, facts.lease_id]
        for value, facts in found
    ]


def lease(lease_id):
    """Return what etcd says of a lease: time granted, time left, keys."""
    info = CLIENT.get_lease_info(lease_id)
    return [info.grantedTTL, info.TTL, [key.decode() for key in info.keys]]


def stand(name, value, ttl):
    """Run for an election with the client-side recipe; return our key and its create revision."""
    lease = CLIENT.lease(ttl)
    key = f"{name}/{lease.id:x}"
    CLIENT.transaction(
        compare=[CLIENT.transactions.create(key) == 0],
        success=[CLIENT.transactions.put(key, value, lease)],
        failure=[],
    )
    HELD[key] = lease
    return [key, CLIENT.get(key)[1].create_revision]


def withdraw(key):
    """End a candidacy or a leadership by revoking its lease."""
    HELD.pop(key).revoke()
    return True


def delete(key):
    """Delete any key."""
    return CLIENT.delete(key)


def lock(name, ttl):
    """Hold etcd3's own lock; return its key and lease."""
    held = CLIENT.lock(name, ttl=ttl)
    assert held.acquire(timeout=5)
    HELD[name] = held
    return [held.key, held.lease.id]


def release(name):
    """Let go of the lock."""
    return HELD.pop(name).release()


def events(name, number):
    """Watch an election and return its next `number` changes; says so first."""
    iterator, cancel = CLIENT.watch_prefix(name + "/")
    print(json.dumps("watching"), flush=True)
    seen = []
    for event in iterator:
        seen.append([type(event).__name__, event.key.decode(), event.value.decode()])
        if len(seen) == number:
            break
    cancel()
    return seen


COMMANDS = {
    command.__name__: command
    for command in (version, candidates, lease, stand, withdraw, delete, lock, release, events)
}

for line in sys.stdin:
    command, *arguments = json.loads(line)
    print(json.dumps(COMMANDS[command](*arguments)), flush=True)
