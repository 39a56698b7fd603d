#!/usr/bin/env python3
"""Compares journeys of client.py at several addresses: same_journeys.py FILE FILE…, files that it recorded.

Their requests have the same bytes, except for the base path, the host and the header Tinwright-Node; and they are answered alike.
"""

import json
import re
import sys


def normalized(file):
    """Returns the exchanges of a journey, each once, without what differs from journey to journey: ids and names of files."""
    with open(file, encoding="utf-8") as text:
        record = json.load(text)
    result = []
    for exchange in record["exchanges"]:
        sent, answer = exchange["request"], exchange["answer"]
        line, head = sent.split("\r\n", 1)
        assert f" {record['base']}/" in line, line
        line = re.sub(r"\bid=\d{1,3}\b", "id=ID", line.replace(record["base"], "BASE"))
        head = head.replace(f"Host: {record['host']}\r\n", "Host: HOST\r\n")
        head = re.sub(r"Tinwright-Node: [^\r]*\r\n", "", head)
        if '"id":' in head:
            # The length of the chunk depends on the id.
            head = re.sub(r'"id":\d+', '"id":ID', re.sub(r"\r\n[0-9a-f]+\r\n", "\r\nLENGTH\r\n", head, count=1))
        for pattern, text in (
            (r'"id":\d+', '"id":ID'), (r"(mount|upper|work)_\d+", r"\1_NUMBER"), (r"/dev/loop\d+", "/dev/loopNUMBER"),
            (r"/\d+-\d+\.log", "/ID-TIME.log"), (r"\b\d+ not found", "ID not found"),
        ):
            answer = re.sub(pattern, text, answer)
        # What a GET shows depends on the time between two of them.
        polled = sent.startswith("GET ") and exchange["status"] == 200
        shape = (line, head, exchange["status"], None if polled else answer)
        if shape not in result:
            result.append(shape)
    return result


def compare(files):
    first, *others = [normalized(file) for file in files]
    for file, other in zip(files[1:], others):
        assert len(first) == len(other), f"{file}: {len(other)} exchanges instead of {len(first)}"
        for one, two in zip(first, other):
            assert one == two, f"{file}:\n{two!r}\n{one!r}"
    print(f"{len(first)} requests and their answers are equal")


if __name__ == "__main__":
    compare(sys.argv[1:])
