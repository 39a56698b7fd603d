#!/usr/bin/env python3
"""A client of the Infrastructure Abstraction Layer that calls and decodes as the platform does.

It needs the standard library only. Requests are encoded as Go's encoding/json encodes the platform's types: compact, each key of a type
present, unset pointers and maps as null, unset keys of `auth` left out. Answers are decoded more strictly than the platform does it: an
unknown key, a missing key, a null where the type has no pointer, and a fraction where the type is an integer are errors.

    ial_client.py --url https://gateway.example:8080 --ca ca.pem --credentials auth.json             # all steps
    ial_client.py … --steps verify,locations                                                          # some
    ial_client.py … --stepwise                                                                        # each after a line on stdin
    ial_client.py --decode locations < answer.json                                                    # checks one answer

It prints one line of JSON for each step: its name, its seconds, those of its slowest call, and its result. The first step that fails ends
it with status 1. The file of credentials has the object `auth` as JSON: secrets are never arguments.
"""

import argparse
import gzip
import http.client
import ipaddress
import json
import os
import re
import ssl
import sys
import time
import urllib.parse

# Every call has to be answered within this time.
CALL_SECONDS = 10
POLL_SECONDS = 5
MAX_INTEGER = 2**64 - 1
OUR_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
CODE = re.compile(r"([0-9]{3})\.[a-z0-9.-]+")
STATUSES = {400, 401, 403, 404, 409, 415, 422, 429, 500, 501, 502, 503, 504}


class Wrong(Exception):
    """An answer that breaks the contract."""


class Refused(Exception):
    """An answer with an error."""

    def __init__(self, error):
        super().__init__(f"{error['code']}: {error['title']}: {error.get('detail', '')}")
        self.error = error


# Types. Each is a function of a value and of its place in the answer, which raises Wrong.


def text(value, where):
    if not isinstance(value, str):
        raise Wrong(f"{where}: not a string: {value!r}")


def boolean(value, where):
    if not isinstance(value, bool):
        raise Wrong(f"{where}: not a boolean: {value!r}")


def unsigned(value, where):
    # bool is a subclass of int.
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_INTEGER:
        raise Wrong(f"{where}: not an unsigned integer: {value!r}")


def number(value, where):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Wrong(f"{where}: not a number: {value!r}")


def anything(_value, _where):
    pass


def true(value, where):
    if value is not True:
        raise Wrong(f"{where}: not true: {value!r}")


def our_id(value, where):
    text(value, where)
    if not OUR_ID.fullmatch(value):
        raise Wrong(f"{where}: not an id: {value!r}")


def matching(pattern):
    def check(value, where):
        text(value, where)
        if not pattern.fullmatch(value):
            raise Wrong(f"{where}: {value!r} is not written as it has to be")

    return check


def parsed_by(parser):
    def check(value, where):
        text(value, where)
        try:
            parser(value)
        except ValueError as error:
            raise Wrong(f"{where}: {error}") from error

    return check


def within(low, high):
    def check(value, where):
        number(value, where)
        if not low <= value <= high:
            raise Wrong(f"{where}: {value} is not between {low} and {high}")

    return check


def one_of(*names):
    def check(value, where):
        if value not in names:
            raise Wrong(f"{where}: {value!r} is none of {names}")

    return check


def nullable(kind):
    return lambda value, where: None if value is None else kind(value, where)


def array(kind):
    def check(value, where):
        if not isinstance(value, list):
            raise Wrong(f"{where}: not an array: {value!r}")
        for index, item in enumerate(value):
            kind(item, f"{where}/{index}")

    return check


def mapping(kind):
    def check(value, where):
        if not isinstance(value, dict):
            raise Wrong(f"{where}: not an object: {value!r}")
        for key, item in value.items():
            kind(item, f"{where}/{key}")

    return check


def struct(optional=None, **required):
    optional = optional or {}

    def check(value, where):
        if not isinstance(value, dict):
            raise Wrong(f"{where}: not an object: {value!r}")
        missing = required.keys() - value.keys()
        unknown = value.keys() - required.keys() - optional.keys()
        if missing or unknown:
            raise Wrong(f"{where}: missing {sorted(missing)}, unknown {sorted(unknown)}")
        for key, item in value.items():
            (required.get(key) or optional[key])(item, f"{where}/{key}")

    return check


def network_of(value):
    if "/" not in value:
        raise ValueError(f"{value!r} has no prefix length")
    return ipaddress.ip_network(value, strict=False)


ADDRESS = parsed_by(ipaddress.ip_address)
CIDR = parsed_by(network_of)
FREE = nullable(mapping(anything))
NOTES = {"extra": mapping(text)}
TEXTS = nullable(array(text))

LOCATION = struct(
    name=text,
    geographic=nullable(struct(
        latitude=within(-90, 90), longitude=within(-180, 180), city=text, state=text, country=text, region=text,
    )),
    provider=struct(location_id=our_id, code=text, availability_zones=nullable(array(our_id))),
    features=struct(available=TEXTS, supported=TEXTS),
    abbreviation=text,
    annotations=nullable(mapping(text)),
    compatible=nullable(boolean),
)
FEATURES = struct(raid=nullable(text), hypervisor=nullable(boolean), optional={"extra": FREE})
SPECS = struct(
    cpu=struct(
        count=unsigned, cores=nullable(unsigned), threads=nullable(unsigned), type=text, shared=nullable(boolean), optional=NOTES,
    ),
    gpu=nullable(struct(
        count=unsigned, cores=nullable(unsigned), vram_gb=nullable(unsigned), type=text, shared=nullable(boolean), optional=NOTES,
    )),
    memory=struct(size_gb=unsigned, type=text, optional=NOTES),
    storage=nullable(array(struct(count=unsigned, size_gb=unsigned, type=one_of("nvme", "ssd", "hdd"), optional=NOTES))),
    network=nullable(array(struct(scope=one_of("public", "private"), type=one_of("ethernet"), throughput=text))),
    features=FEATURES,
)
MODEL = struct(
    name=text,
    drivers=TEXTS,
    description=text,
    specs=SPECS,
    provider=struct(
        category=text,
        model_id=our_id,
        locations=nullable(array(our_id)),
        availability_zones=nullable(mapping(nullable(array(our_id)))),
        optional={"class": text},
    ),
    pricing=struct(hourly=unsigned, monthly=unsigned),
    compatible=nullable(boolean),
)
ANSWERS = {
    "verify": struct(valid=boolean),
    "locations": struct(locations=array(LOCATION), extra=FREE),
    "models": struct(models=array(MODEL), extra=FREE),
    "configure": struct(configured=boolean, version=nullable(text), configuration_latest=FREE),
    "provision": struct(server_id=our_id, location_modified=boolean, extra=FREE),
    "status": struct(
        server_id=our_id,
        provisioned=boolean,
        auth=struct(uuid=nullable(matching(UUID)), initial_ips=array(ADDRESS), mac_addr=nullable(matching(MAC))),
        extra=FREE,
    ),
    "restart": true,
    "decommission": true,
    "allocate": struct(
        ip_id=our_id,
        ip_assignment_id=our_id,
        cidr=CIDR,
        gateway=nullable(ADDRESS),
        network=nullable(CIDR),
        netmask=text,
        nat_private_ip=nullable(ADDRESS),
    ),
    "release": true,
}
ERROR = struct(
    status=one_of(*sorted(STATUSES)),
    code=matching(CODE),
    title=text,
    optional={"detail": text, "source": matching(re.compile(r"(/(auth|request)(/.*)?)?")), "extra": FREE},
)

# The paths below the base URL.
PATHS = {
    "verify": ("POST", "/v1/auth/verify"),
    "locations": ("GET", "/v1/infrastructure/provider/locations"),
    "models": ("GET", "/v1/infrastructure/provider/server-models"),
    "configure": ("POST", "/v1/location/configure"),
    "provision": ("POST", "/v1/infrastructure/server/provision"),
    "status": ("POST", "/v1/infrastructure/server/provision-status"),
    "restart": ("POST", "/v1/infrastructure/server/restart"),
    "decommission": ("POST", "/v1/infrastructure/server/decommission"),
    "allocate": ("POST", "/v1/infrastructure/ip/allocate"),
    "release": ("POST", "/v1/infrastructure/ip/release"),
}
STATUS_ROUTES = [
    (method, f"/v1/infrastructure/server/provision-{name}") for name in ("status", "check") for method in ("POST", "GET")
]


def unique(pairs):
    keys = [key for key, _ in pairs]
    if len(keys) != len(set(keys)):
        raise Wrong(f"a key occurs twice: {keys}")
    return dict(pairs)


def not_finite(name):
    raise Wrong(f"{name} is no JSON")


def decode(name, status, body):
    """Returns the data of an answer. Raises Refused if it has an error."""
    try:
        answer = json.loads(body.decode("utf-8"), object_pairs_hook=unique, parse_constant=not_finite)
    except ValueError as error:
        raise Wrong(f"HTTP {status}: not JSON: {error}") from error
    if not isinstance(answer, dict) or answer.keys() != {"data", "error"}:
        raise Wrong(f"HTTP {status}: no envelope")
    data, error = answer["data"], answer["error"]
    if error is not None:
        ERROR(error, "error")
        if data is not None or error["status"] != status or not error["code"].startswith(f"{status}."):
            raise Wrong(f"HTTP {status}: its error is {error}, its data {data}")
        raise Refused(error)
    if status != 200:
        raise Wrong(f"HTTP {status} without error")
    ANSWERS[name](data, "data")
    return data


def encode(value):
    """Encodes as Go does: compact, and without characters that end a script in HTML."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return written.encode("utf-8")


class Connection:
    """Calls at a base URL, over a connection that is kept."""

    def __init__(self, url, authority):
        self.url = urllib.parse.urlsplit(url)
        is_loopback = self.url.hostname in ("localhost", "::1") or (self.url.hostname or "").startswith("127.")
        if self.url.scheme == "http" and not is_loopback:
            raise SystemExit("plain http is for loopback only")
        self.context = ssl.create_default_context(cafile=authority) if self.url.scheme == "https" else None
        self.slowest = 0.0
        self.kept = None

    def open(self):
        host, port = self.url.hostname, self.url.port
        if self.context:
            return http.client.HTTPSConnection(host, port, timeout=CALL_SECONDS, context=self.context)
        return http.client.HTTPConnection(host, port, timeout=CALL_SECONDS)

    def send(self, method, path, body, headers):
        """Sends a request over the kept connection, or over a new one if that has ended meanwhile. Returns the answer, and its body."""
        is_kept = self.kept is not None
        connection, self.kept = self.kept or self.open(), None
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
        except (ConnectionError, ssl.SSLEOFError):
            connection.close()
            if not is_kept:
                raise
            return self.send(method, path, body, headers)
        body = answer.read()
        if answer.will_close:
            connection.close()
        else:
            self.kept = connection
        return answer, body

    def call(self, method, path, wrapper):
        """Returns status and body."""
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Go-http-client/1.1",
            "Accept-Encoding": "gzip",
        }
        start = time.monotonic()
        answer, body = self.send(method, self.url.path + path, encode(wrapper), headers)
        coding = answer.getheader("Content-Encoding", "identity")
        seconds = time.monotonic() - start
        self.slowest = max(self.slowest, seconds)
        if seconds > CALL_SECONDS:
            raise Wrong(f"{method} {path}: answered after {seconds:.1f} s")
        media = answer.getheader("Content-Type", "").split(";")[0].strip()
        if media != "application/json":
            raise Wrong(f"{method} {path}: HTTP {answer.status} of the type {media!r}")
        return answer.status, gzip.decompress(body) if coding == "gzip" else body


def check_order(ids, what):
    if ids != sorted(set(ids)):
        raise Wrong(f"{what} are not in the order of their ids, or not unique: {ids}")


class Platform:
    """What the platform stores of a hub, and its calls."""

    def __init__(self, options):
        with open(options.credentials, encoding="utf-8") as file:
            self.auth = json.load(file)
        self.options = options
        self.connection = Connection(options.url, options.ca)
        self.ids = {name: os.urandom(12).hex() for name in ("server", "model", "location")}
        self.locations = self.models = self.snapshot = None
        self.location = self.model = self.zone = None
        self.configuration, self.version = None, ""
        self.server = self.extra = self.address = None

    def send(self, name, request, auth=None, route=None):
        """Returns the raw answer."""
        method, path = route or PATHS[name]
        wrapper = {"auth": self.auth if auth is None else auth, "request": request}
        return self.connection.call(method, path, wrapper)

    def call(self, name, request, **how):
        return decode(name, *self.send(name, request, **how))

    def server_meta(self):
        return {
            "server_id": self.ids["server"],
            "model_class": self.model["provider"].get("class", ""),
            "model_category": self.model["provider"]["category"],
            "model_id": self.ids["model"],
            "location_id": self.ids["location"],
        }

    def pool_meta(self, pool):
        return {
            "pool_id": pool,
            "server_id": self.ids["server"],
            "server_model_class": self.model["provider"].get("class", ""),
            "server_model_category": self.model["provider"]["category"],
            "location_id": self.ids["location"],
        }

    def features(self):
        features = dict(self.model["specs"]["features"])
        if not features.get("extra"):
            features.pop("extra", None)
        return features

    # The steps, in the order of a machine's life. Each returns its result.

    def verify(self):
        return self.call("verify", None)

    def verify_wrong(self):
        """Checks credentials of which one has another value."""
        name = next(name for name in ("secret", "api_key", "client_id") if name in self.auth)
        answer = self.call("verify", None, auth={**self.auth, name: self.auth[name] + "x"})
        if answer["valid"]:
            raise Wrong("wrong credentials are valid")
        return answer

    def list_locations(self):
        answer = self.call("locations", None)
        self.locations = answer["locations"]
        check_order([it["provider"]["location_id"] for it in self.locations], "locations")
        self.snapshot = (answer["extra"] or {}).get("snapshot")
        return answer

    def list_models(self):
        answer = self.call("models", None)
        self.models = answer["models"]
        check_order([it["provider"]["model_id"] for it in self.models], "models")
        listed = {it["provider"]["location_id"]: it["provider"]["availability_zones"] or [] for it in self.locations}
        for model in self.models:
            places, zones = model["provider"]["locations"] or [], model["provider"]["availability_zones"] or {}
            for place in places + list(zones):
                if place not in listed or set(zones.get(place) or []) - set(listed[place]):
                    raise Wrong(f"{model['name']} is offered at {place}, which is not listed so: {listed}")
        if (answer["extra"] or {}).get("snapshot") != self.snapshot:
            raise Wrong("the listings are of different snapshots")
        return answer

    def choose(self):
        """Chooses location, model and zone."""
        if self.models is None:
            self.list_locations()
            self.list_models()
        wanted = self.options
        for model in self.models:
            if not model["compatible"] or model["provider"]["model_id"] != (wanted.model or model["provider"]["model_id"]):
                continue
            for place in model["provider"]["locations"] or []:
                is_usable = any(it["compatible"] and it["provider"]["location_id"] == place for it in self.locations)
                if is_usable and place == (wanted.location or place):
                    self.model, self.location = model, place
                    self.zone = wanted.zone
                    return
        raise Wrong("no model can be had at a location")

    def configure_once(self):
        answer = self.call("configure", {
            "location_id": self.location,
            "version": self.version,
            "configuration_current": self.configuration,
            "cycle": {"location_id": self.ids["location"]},
        })
        self.version, self.configuration = answer["version"] or "", answer["configuration_latest"]
        return answer

    def configure(self):
        self.choose()
        until = time.monotonic() + self.options.limit
        while not (answer := self.configure_once())["configured"]:
            if time.monotonic() > until:
                raise Wrong(f"the location is not configured after {self.options.limit} s")
            time.sleep(POLL_SECONDS)
        if self.configure_once() != answer:
            raise Wrong("a second call with the version in force does not get the same answer")
        return answer

    def provision(self):
        request = {
            "hostname": self.options.hostname,
            "model_id": self.model["provider"]["model_id"],
            "location_id": self.location,
            "zone_id": self.zone,
            "model_features": self.features(),
            "provision_options": None,
            "location_configuration": self.configuration,
            "cycle": self.server_meta(),
        }
        answer = self.call("provision", request)
        self.server, self.extra = answer["server_id"], answer["extra"]
        again = self.call("provision", request)["server_id"]
        if again != self.server:
            raise Wrong(f"the same request got {self.server} and {again}")
        return answer

    def status_request(self):
        return {
            "server_id": self.server,
            "location_id": self.location,
            "zone_id": self.zone,
            "model_features": self.features(),
            "provision_options": None,
            "location_configuration": self.configuration,
            "extra": self.extra,
            "cycle": self.server_meta(),
        }

    def poll(self):
        """Returns the status, or None if the integration cannot answer now."""
        try:
            answer = self.call("status", self.status_request())
        except Refused as refused:
            if refused.error["status"] not in (429, 503, 504):
                raise
            return None
        identity, is_done = answer["auth"], answer["provisioned"]
        if answer["server_id"] != self.server:
            raise Wrong(f"the status of {self.server} is that of {answer['server_id']}")
        if not is_done and identity != {"uuid": None, "initial_ips": [], "mac_addr": None}:
            raise Wrong(f"an identity before the machine is provisioned: {identity}")
        if is_done and not ((identity["uuid"] or identity["mac_addr"]) and identity["initial_ips"]):
            raise Wrong(f"provisioned without an identity: {identity}")
        return answer

    def status(self):
        until, polls = time.monotonic() + self.options.limit, 0
        while True:
            polls += 1
            answer = self.poll()
            if answer and answer["provisioned"]:
                break
            if time.monotonic() > until:
                raise Wrong(f"not provisioned after {self.options.limit} s: {answer}")
            time.sleep(POLL_SECONDS)
        request = self.status_request()
        bodies = {self.send("status", request, route=route) for route in STATUS_ROUTES}
        if len(bodies) != 1 or decode("status", *bodies.pop()) != answer:
            raise Wrong(f"the routes of the status give different answers: {bodies}")
        self.extra = answer["extra"]
        return {**answer, "polls": polls}

    def allocate(self):
        answer = self.call("allocate", {
            "kind": "ipv4",
            "server_id": self.server,
            "location_id": self.location,
            "zone_id": self.zone,
            "location_configuration": self.configuration,
            "cycle": self.pool_meta(None),
        })
        granted = ipaddress.ip_network(answer["cidr"])
        if granted.version != 4 or granted.prefixlen != 32 or answer["ip_id"] == answer["ip_assignment_id"]:
            raise Wrong(f"not one IPv4 address: {answer}")
        network = answer["network"] and ipaddress.ip_network(answer["network"], strict=False)
        if answer["netmask"] != (str(network.netmask) if network else ""):
            raise Wrong(f"the mask is not that of the network: {answer}")
        self.address = answer
        return answer

    def change(self, name):
        return self.call(name, {
            "server_id": self.server,
            "hostname": self.options.hostname,
            "model_id": self.model["provider"]["model_id"],
            "location_id": self.location,
            "zone_id": self.zone,
            "extra": self.extra,
            "cycle": self.server_meta(),
        })

    def restart(self):
        return self.change("restart")

    def refuse_decommission(self):
        """Checks that a machine with an allocated address is not given back. The platform does not do this."""
        return self.expect_refusal("403.invalid-state", lambda: self.change("decommission"))

    def release(self):
        request = {
            "kind": "ipv4",
            "ip_id": self.address["ip_id"],
            "ip_assignment_id": self.address["ip_assignment_id"],
            "cidr": self.address["cidr"],
            "nat_private_ip": self.address["nat_private_ip"],
            "zone_id": self.zone,
            "server_id": self.server,
            "location_id": self.location,
            "location_configuration": self.configuration,
            "cycle": self.pool_meta(os.urandom(12).hex()),
        }
        self.call("release", request)
        return self.call("release", request)

    def decommission(self):
        self.change("decommission")
        return self.change("decommission")

    def gone(self):
        """Checks that the machine has no status any more."""
        return self.expect_refusal("403.invalid-state", lambda: self.call("status", self.status_request()))

    def expect_refusal(self, code, call):
        try:
            answer = call()
        except Refused as refused:
            if refused.error["code"] != code:
                raise
            return refused.error
        raise Wrong(f"answered with {answer}, not with {code}")


STEPS = {
    "verify": Platform.verify,
    "verify-wrong": Platform.verify_wrong,
    "locations": Platform.list_locations,
    "models": Platform.list_models,
    "configure": Platform.configure,
    "provision": Platform.provision,
    "status": Platform.status,
    "allocate": Platform.allocate,
    "restart": Platform.restart,
    "refuse-decommission": Platform.refuse_decommission,
    "release": Platform.release,
    "decommission": Platform.decommission,
    "gone": Platform.gone,
}


def report(**line):
    print(json.dumps(line), flush=True)


def run(options):
    platform = Platform(options)
    for name in options.steps:
        if options.stepwise and not sys.stdin.readline():
            return
        start, platform.connection.slowest = time.monotonic(), 0.0
        try:
            result = STEPS[name](platform)
        except (Wrong, Refused, OSError, http.client.HTTPException) as error:
            report(step=name, error=f"{type(error).__name__}: {error}")
            raise SystemExit(1) from error
        seconds, slowest = round(time.monotonic() - start, 3), round(platform.connection.slowest, 3)
        report(step=name, seconds=seconds, slowest=slowest, result=result)


def check_answer(name, status):
    """Decodes the answer on stdin."""
    try:
        decode(name, status, sys.stdin.buffer.read())
    except Refused as refused:
        report(answer=name, refused=refused.error["code"])
    except Wrong as wrong:
        report(answer=name, error=str(wrong))
        raise SystemExit(1) from wrong
    else:
        report(answer=name)


def steps(value):
    names = value.split(",")
    unknown = [name for name in names if name not in STEPS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no such steps: {unknown}; there are {', '.join(STEPS)}")
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="the base URL, without /v1")
    parser.add_argument("--ca", help="the certificates of authorities, as PEM [default: the system's]")
    parser.add_argument("--credentials", help="the file with the object auth")
    parser.add_argument("--steps", type=steps, default=list(STEPS), help="the steps, separated by commas [default: all]")
    parser.add_argument("--stepwise", action="store_true", help="begin each step after a line on stdin; its end ends the run")
    parser.add_argument("--hostname", default="edge-1.example.net")
    parser.add_argument("--location", help="the location to order at [default: any]")
    parser.add_argument("--model", help="the model to order [default: any]")
    parser.add_argument("--zone", help="the zone to order in [default: none is named]")
    parser.add_argument("--limit", type=float, default=1800, help="the longest time for a location or a machine, in seconds")
    parser.add_argument("--decode", choices=ANSWERS, help="decode the answer of this call on stdin, and do nothing else")
    parser.add_argument("--status", type=int, default=200, help="the HTTP status of the answer to decode")
    options = parser.parse_args()
    if options.decode:
        return check_answer(options.decode, options.status)
    if not (options.url and options.credentials):
        parser.error("--url and --credentials are needed")
    return run(options)


if __name__ == "__main__":
    main()
