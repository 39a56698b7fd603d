#!/usr/bin/env python3
"""A client of the ImageAPI that sends what the client sends that Go's generator makes from the API description, byte for byte.

    client.py compare DIRECTORY                     compares its requests with recorded ones, DIRECTORY/*.http
    client.py journey ADDRESS DIRECTORY [OPTION…]   creates, runs and deletes stacks of images in DIRECTORY at ADDRESS,
                                                    http://127.0.0.1:8080, https://… or unix:/run/imageapi.sock
        --base PATH           the base path, if it is another one
        --node NODE           sends the header Tinwright-Node
        --authority FILE      trusts this certificate authority for https
        --identity FILE       presents this certificate, with its key
        --record FILE         writes all requests and answers to FILE, for same_journeys.py

Only the standard library is used.
"""

import argparse
import http.client
import json
import os
import select
import socket
import ssl
import sys
import time
import urllib.parse

BASE = "/imageapi/v1"

# Properties that are sent as null when they are not set: required ones, and lists.
NULL = {
    "attach": [],
    "iscsi": ["host", "initiator", "target"],
    "local": ["path"],
    "loopback": ["base", "path"],
    "rbd": ["image", "monitors", "pool"],
    "options": [],
    "mount": [],
    "mount_attach": ["attach", "fs_type", "mount_options"],
    "bind": ["base", "path"],
    "nfs": ["host", "options", "path"],
    "overlay": ["lower"],
    "container": ["command", "mount", "namespaces"],
}
# Objects in other objects: (object, property) -> object.
NESTED = {
    ("attach", "iscsi"): "iscsi",
    ("attach", "local"): "local",
    ("attach", "loopback"): "loopback",
    ("attach", "rbd"): "rbd",
    ("loopback", "mount"): "mount",
    ("rbd", "options"): "options",
    ("mount", "attach"): "mount_attach",
    ("mount", "bind"): "bind",
    ("mount", "nfs"): "nfs",
    ("mount", "overlay"): "overlay",
    ("mount_attach", "attach"): "attach",
    ("bind", "mount"): "mount",
    ("overlay", "lower"): "mount",
    ("container", "mount"): "mount",
}
# Optional properties with a declared default are pointers in Go: sent whenever they are set, also when they are false or 0.
POINTERS = {
    "bind": ["recursive", "ro"],
    "nfs": ["ro", "version"],
    "loopback": ["readPartitions"],
    "iscsi": ["port", "max_comands", "queue_depth", "scheduler"],
}


def encode(kind, value):
    """Returns the object as Go's encoding/json has it: sorted keys, explicit nulls, zero values left out."""
    if value is None:
        return None
    result = {}
    for key in sorted(set(value) | set(NULL[kind])):
        item = value.get(key)
        nested = NESTED.get((kind, key))
        if nested and isinstance(item, list):
            item = [encode(nested, element) for element in item]
        elif nested and item is not None:
            item = encode(nested, item)
        is_zero = item in (None, 0, "", False) or item == []
        if is_zero and key in NULL[kind]:
            item = None if item in (None, []) else item
        elif is_zero and not (key in POINTERS.get(kind, []) and item is not None):
            continue
        result[key] = item
    return result


def body_bytes(kind, value):
    text = json.dumps(encode(kind, value), separators=(",", ":"), ensure_ascii=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, "\\u%04x" % ord(letter))
    return text.encode() + b"\n"


def request(host, method, path, query=None, body=None, base=BASE, node=None):
    """Returns the bytes of a request. `body` is none, or a pair of object and value; a POST without a value is empty."""
    target = base + path
    if query:
        target += "?" + urllib.parse.urlencode(sorted(query.items()))
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "User-Agent: Go-http-client/1.1"]
    if body is not None:
        lines += ["Transfer-Encoding: chunked", "Accept: application/json", "Content-Type: application/json"]
    else:
        if method in ("POST", "PATCH"):
            lines.append("Content-Length: 0")
        lines.append("Accept: application/json")
    if node is not None:
        lines.append(f"Tinwright-Node: {node}")
    lines.append("Accept-Encoding: gzip")
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"
    if body is None:
        return head
    data = body_bytes(*body)
    return head + b"%x\r\n" % len(data) + data + b"\r\n0\r\n\r\n"


class ApiError(Exception):
    """The default response of an operation."""

    def __init__(self, status, value):
        super().__init__(f"{status}: {value}")
        self.status, self.code, self.message = status, value.get("code", 0), value["message"]


class Client:
    """A client with one connection, which is kept."""

    def __init__(self, address, base=BASE, node=None, tls=None):
        self.address, self.base, self.node, self.tls = address, base, node, tls
        self.connection, self.exchanges = None, []
        self.host = "localhost" if address.startswith("unix:") else urllib.parse.urlparse(address).netloc

    def connect(self):
        if self.address.startswith("unix:"):
            self.connection = socket.socket(socket.AF_UNIX)
            self.connection.connect(self.address[len("unix:"):])
        else:
            url = urllib.parse.urlparse(self.address)
            self.connection = socket.create_connection((url.hostname, url.port))
            if self.tls is not None:
                self.connection = self.tls.wrap_socket(self.connection, server_hostname=url.hostname)
        # The default timeout of the Go client.
        self.connection.settimeout(30)

    def is_connected(self):
        """True if there is a connection that the server has not closed. Nothing is sent to an idle client but its end."""
        return self.connection is not None and not select.select([self.connection], [], [], 0)[0]

    def send(self, method, path, query=None, body=None):
        """Sends a request, and judges its response as the Go client does, which replaces a connection that was closed while idle."""
        if not self.is_connected():
            self.connect()
        sent = request(self.host, method, path, query, body, self.base, self.node)
        self.connection.sendall(sent)
        response = http.client.HTTPResponse(self.connection, method=method)
        response.begin()
        data = response.read()
        self.exchanges.append({"request": sent.decode(), "status": response.status, "answer": data.decode()})
        if response.will_close:
            self.connection.close()
            self.connection = None
        kind = response.headers.get("Content-Type", "")
        value = None
        if data:
            assert kind == "application/json", f"{method} {path}: content type {kind!r}"
            value = json.loads(data)
        if response.status == (201 if method == "POST" else 200):
            return value
        assert response.status >= 400, f"{method} {path}: status {response.status}"
        raise ApiError(response.status, value)

    def attach(self, value):
        return self.send("POST", "/attach", body=("attach", value))

    def mount(self, value):
        return self.send("POST", "/mount", body=("mount", value))

    def create_container(self, value):
        return self.send("POST", "/container", body=("container", value))

    def list(self, path, **query):
        return self.send("GET", path, query)

    def delete(self, path, **query):
        return self.send("DELETE", path, query)

    def set_container_state(self, **query):
        return self.send("PATCH", "/container", query)


def recorded():
    """Returns the requests that were recorded, by the names of their files."""
    node = "node:8080"
    rbd = {"image": "c", "monitors": ["10.20.0.31"], "pool": "images", "snapshot": "gold",
           "options": {"name": "images-ro", "secret": "QVFE", "ro": True}}
    lower = [
        {"kind": "bind", "bind": {"base": "root", "path": "/srv/site", "recursive": False, "ro": True}},
        {"kind": "attach", "attach": {"fs_type": "squashfs", "attach": {"kind": "rbd", "rbd": rbd}}},
        {"kind": "nfs", "nfs": {"host": "nas1", "path": "/export"}},
        {"id": 12},
    ]
    container = {"name": "n2", "command": "/sbin/init", "systemd": True, "state": "running",
                 "mount": {"kind": "overlay", "overlay": {"lower": lower}}}
    iscsi = {"initiator": "iqn.i", "target": "iqn.t", "host": "10.20.0.21", "lun": 0, "max_comands": 0}
    mount = {"kind": "attach", "attach": {"fs_type": "erofs", "attach": {"id": 41}}}
    return {
        "attach-iscsi": request(node, "POST", "/attach", body=("attach", {"kind": "iscsi", "iscsi": iscsi})),
        "attach-local": request(node, "POST", "/attach",
                                body=("attach", {"kind": "local", "local": {"path": "/dev/nvme1n1"}})),
        "attach-without-body": request(node, "POST", "/attach"),
        "create-container": request(node, "POST", "/container", body=("container", container)),
        "create-container-empty": request(node, "POST", "/container", body=("container", {})),
        "delete-attach": request(node, "DELETE", "/attach", {"id": 7}),
        "delete-container-forced": request(node, "DELETE", "/container", {"name": "svc", "force": "true"}),
        "delete-mount-with-defaults": request(node, "DELETE", "/mount", {"id": 44, "force": "false"}),
        "list-attachments": request(node, "GET", "/attach"),
        "list-containers-all-keys": request(node, "GET", "/container",
                                            {"id": 7, "name": "a b", "state": "running"}),
        "list-mounts-by-kind": request(node, "GET", "/mount", {"kind": "overlay"}),
        "mount-by-reference": request(node, "POST", "/mount", body=("mount", mount)),
        "mount-without-values": request(node, "POST", "/mount", body=("mount", {"kind": "nfs", "nfs": {}})),
        "set-container-state": request(node, "PATCH", "/container", {"name": "svc", "state": "exited"}),
    }


def compare(directory):
    """Compares the requests of this client with the recorded ones."""
    sent = recorded()
    names = {name[: -len(".http")] for name in os.listdir(directory)}
    assert names == set(sent), f"not compared: {names ^ set(sent)}"
    for name, data in sent.items():
        with open(os.path.join(directory, name + ".http"), "rb") as file:
            expected = file.read()
        assert data == expected, f"{name}:\n{data!r}\n{expected!r}"
    print(f"{len(sent)} requests are equal")


def wait(what, condition):
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"not within a minute: {what}")


def refused(call, status, code):
    """Checks that a call fails with this status and code, and returns the message."""
    try:
        value = call()
    except ApiError as error:
        assert (error.status, error.code) == (status, code), error
        return error.message
    raise AssertionError(f"not refused: {value}")


def count(client):
    return [len(client.list(path)) for path in ("/attach", "/mount", "/container")]


def bind(path, **more):
    return {"kind": "bind", "bind": {"base": "root", "path": path, **more}}


def overlay(*lower):
    return {"kind": "overlay", "overlay": {"lower": list(lower)}}


def from_device(fs_type, options, attach):
    return {"kind": "attach", "attach": {"fs_type": fs_type, "mount_options": options, "attach": attach}}


def run_container(client, name, mount, command="/bin/sleep 1000"):
    """Runs a container until it is stopped, and deletes it with its stack."""
    created = client.create_container({"name": name, "command": command, "state": "running", "mount": mount})
    assert created["state"] == "running" and created["refs"] == 1, created
    assert created["namespaces"] is None and created["mount"]["refs"] >= 1, created
    assert client.list("/container", name=name)[0]["id"] == created["id"]
    assert refused(lambda: client.delete("/container", name=name), 409, 409).startswith("object is busy")
    assert client.set_container_state(name=name, state="exited")["state"] == "stopping"
    wait(f"{name} is exited", lambda: client.list("/container", name=name)[0]["state"] == "exited")
    client.delete("/container", name=name)
    return created


def schemes(client, directory):
    """The example objects of the contract, as far as no server is needed."""
    images = os.path.join(directory, "files")
    squashfs = {"kind": "loopback", "loopback": {
        "base": "mount", "path": "/image.sqsh", "readPartitions": False, "mount": bind(images, ro=True)}}
    ext4 = {"kind": "loopback", "loopback": {"base": "root", "path": os.path.join(images, "image.ext4")}}
    run_container(client, "build-host", bind(os.path.join(directory, "image")))
    run_container(client, "compute.rocky", overlay(bind(os.path.join(directory, "image"), ro=True)))
    run_container(client, "compute.sqsh", overlay(from_device("squashfs", ["ro"], squashfs)))
    run_container(client, "login-a", from_device("ext4", ["rw", "noatime"], ext4))
    run_container(client, "compute.rbd", overlay(from_device("ext4", ["ro"], ext4)))
    wait("the stacks are collected", lambda: count(client) == [0, 0, 0])


def references(client, directory):
    """The example "by reference, and layered"."""
    image = os.path.join(directory, "files", "image.sqsh")
    attached = client.attach({"kind": "loopback", "loopback": {"base": "root", "path": image}})
    assert attached["refs"] == 1 and attached["device_file"].startswith("/dev/loop"), attached
    layer = bind(os.path.join(directory, "image"), ro=True, recursive=False)
    mounted = client.mount(overlay(layer, from_device("squashfs", ["ro"], {"id": attached["id"]})))
    below = mounted["overlay"]["lower"][1]["attach"]
    assert (mounted["refs"], below["attach"]["refs"]) == (1, 2), mounted
    assert mounted["overlay"]["lower"][0]["bind"]["recursive"] is False, mounted
    run_container(client, "svc", {"id": mounted["id"]})
    assert client.list("/mount", id=mounted["id"])[0]["refs"] == 1
    refused(lambda: client.delete("/mount", id=mounted["id"], force="false"), 409, 409)
    client.delete("/mount", id=mounted["id"], force="true")
    wait("the layers are collected", lambda: count(client) == [1, 0, 0])
    assert client.list("/attach", id=attached["id"])[0]["refs"] == 1
    client.delete("/attach", id=attached["id"], force="true")
    assert count(client) == [0, 0, 0]


def errors(client):
    """Refusals, with status and code."""
    path = lambda: client.attach({"kind": "local", "local": {}})
    assert refused(path, 422, 602) == "path in body is required"
    refused(lambda: client.create_container({}), 422, 602)
    refused(lambda: client.send("POST", "/attach"), 422, 602)
    refused(lambda: client.mount({"kind": "nfs", "nfs": {}}), 422, 602)
    refused(lambda: client.delete("/attach", id=999, force="true"), 404, 404)
    refused(lambda: client.list("/container", name="nobody"), 404, 404)
    refused(lambda: client.delete("/container"), 400, 400)
    refused(lambda: client.set_container_state(name="nobody", state="paused"), 404, 404)
    refused(lambda: client.mount({"kind": "uri"}), 501, 501)
    refused(lambda: client.mount(bind("../etc")), 400, 400)
    rbd = {"monitors": ["10.20.0.31"], "pool": "nodes", "image": "login-b"}
    refused(lambda: client.attach({"kind": "rbd", "rbd": rbd}), 400, 400)
    assert client.list("/container", state="running") == []


def journey(arguments):
    tls = None
    if arguments.address.startswith("https:"):
        tls = ssl.create_default_context(cafile=arguments.authority)
        tls.load_cert_chain(arguments.identity)
    client = Client(arguments.address, arguments.base, arguments.node, tls)
    schemes(client, arguments.directory)
    references(client, arguments.directory)
    errors(client)
    assert count(client) == [0, 0, 0]
    if arguments.record:
        with open(arguments.record, "w", encoding="utf-8") as file:
            json.dump({"host": client.host, "base": client.base, "exchanges": client.exchanges}, file)
    print("everything worked, and nothing is left")


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("compare")
    command.add_argument("directory")
    command.set_defaults(run=lambda arguments: compare(arguments.directory))
    command = commands.add_parser("journey")
    command.add_argument("address")
    command.add_argument("directory")
    command.add_argument("--base", default=BASE)
    for option in ("--node", "--authority", "--identity", "--record"):
        command.add_argument(option)
    command.set_defaults(run=journey)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
