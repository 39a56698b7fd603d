#!/usr/bin/env python3
"""Runs a container of every scheme at an ImageAPI: a node's own, or one behind the gateway.

    imageapi_client.py SCHEMES ADDRESS --library DIRECTORY [--base PATH] [--ca FILE --certificate FILE --key FILE]

SCHEMES is a JSON list of objects with the body of a container, and the report that its system writes to /report once it has started. ADDRESS is
https://HOST:PORT, or unix:PATH, which is a socket of the node that this program runs on. DIRECTORY has client.py, which sends what the client
sends that Go's generator makes.

On the node this program reads the reports itself. Elsewhere it prints "started MOUNTPOINT REPORT" and waits for a line of its input.
"""

import argparse
import json
import os
import ssl
import sys
import time


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("schemes")
    parser.add_argument("address")
    parser.add_argument("--library", required=True)
    parser.add_argument("--base", default="/imageapi/v1")
    parser.add_argument("--ca")
    parser.add_argument("--certificate")
    parser.add_argument("--key")
    return parser.parse_args()


options = arguments()
sys.path.insert(0, options.library)
import client as go  # noqa: E402


class Client(go.Client):
    """The client. It leaves out the objects that were there before it."""

    def __init__(self, address, base, tls):
        super().__init__(address, base, tls=tls)
        self.others = {path: [it["id"] for it in super(Client, self).list(path)]
                       for path in ("/attach", "/mount", "/container")}

    def list(self, path, **query):
        listed = super().list(path, **query)
        return [it for it in listed if it["id"] not in self.others[path]]


def wait_for_report(created, report):
    """Waits until the system of a container has started."""
    mountpoint = created["mount"]["mountpoint"]
    if not options.address.startswith("unix:"):
        print("started", mountpoint, json.dumps(report), flush=True)
        assert sys.stdin.readline(), "the input has ended"
        return
    path = os.path.join(mountpoint, "report")
    for _ in range(1800):
        try:
            with open(path, encoding="ascii") as file:
                if file.read() == report:
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"no report of {created['name']}")


def run(client, body, report):
    """Runs a container from its creation to its deletion."""
    name = body["name"]
    created = client.create_container(body)
    assert (created["state"], created["refs"], created["namespaces"]) == ("running", 1, None), created
    assert "secret" not in json.dumps(created).replace('"secret": ""', ""), "a secret in an answer"
    wait_for_report(created, report)
    (listed,) = client.list("/container", state="running")
    assert (listed["id"], listed["name"]) == (created["id"], name), listed
    assert go.refused(lambda: client.delete("/container", name=name), 409, 409).startswith("object is busy")
    assert client.set_container_state(name=name, state="exited")["state"] == "stopping"
    wait_for_end(client, name)
    client.delete("/container", name=name)
    go.wait(f"the stack of {name} is collected", lambda: go.count(client) == [0, 0, 0])
    print("done", name, flush=True)


def wait_for_end(client, name):
    # A system may take its time.
    for _ in range(3):
        try:
            go.wait(f"{name} is exited", lambda: client.list("/container", name=name)[0]["state"] == "exited")
            return
        except AssertionError as error:
            late = error
    raise late


def references(client, scheme):
    """The example "by reference, and layered", on the device of a scheme that only reads it."""
    (lower,) = scheme["body"]["mount"]["overlay"]["lower"]
    attached = client.attach(lower["attach"]["attach"])
    assert attached["refs"] == 1 and attached["device_file"].startswith("/dev/"), attached
    layer = go.bind("/etc", ro=True, recursive=False)
    by_id = {"id": attached["id"]}
    mounted = client.mount(go.overlay(layer, go.from_device(lower["attach"]["fs_type"], ["ro"], by_id)))
    below = mounted["overlay"]["lower"][1]["attach"]
    assert (mounted["refs"], below["attach"]["refs"]) == (1, 2), mounted
    body = {**scheme["body"], "name": "svc", "mount": {"id": mounted["id"]}}
    created = client.create_container(body)
    wait_for_report({**created, "mount": mounted}, scheme["report"])
    client.set_container_state(name="svc", state="exited")
    wait_for_end(client, "svc")
    client.delete("/container", name="svc")
    assert client.list("/mount", id=mounted["id"])[0]["refs"] == 1
    go.refused(lambda: client.delete("/mount", id=mounted["id"], force="false"), 409, 409)
    client.delete("/mount", id=mounted["id"], force="true")
    go.wait("the layers are collected", lambda: go.count(client) == [1, 0, 0])
    assert client.list("/attach", id=attached["id"])[0]["refs"] == 1
    client.delete("/attach", id=attached["id"], force="true")
    assert go.count(client) == [0, 0, 0]
    print("done by reference", flush=True)


def main():
    tls = None
    if options.address.startswith("https:"):
        tls = ssl.create_default_context(cafile=options.ca)
        tls.load_cert_chain(options.certificate, options.key)
    client = Client(options.address, options.base, tls)
    with open(options.schemes, encoding="utf-8") as file:
        schemes = json.load(file)
    for scheme in schemes:
        run(client, scheme["body"], scheme["report"])
    references(client, next(it for it in schemes if it["body"]["name"] == "compute.iscsi"))
    go.errors(client)
    print("everything worked, and nothing is left", flush=True)


if __name__ == "__main__":
    main()
