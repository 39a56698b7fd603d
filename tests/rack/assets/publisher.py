"""Serves the files in a folder over HTTPS: publisher.py FOLDER ADDRESS CERTIFICATE KEY"""

import functools
import http.server
import ssl
import sys

folder, address, certificate, key = sys.argv[1:]
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
server = http.server.ThreadingHTTPServer((address, 443), handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
