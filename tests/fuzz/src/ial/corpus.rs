//! The examples of the platform's contract, as the requests of the corpus, and their parts as words.

use serde_json::{Value, json};

/// The key of the only credential.
pub(super) const KEY: &str = "mk_live_3f9d2c7a51";
/// The hub for which the machines were ordered.
pub(super) const HUB: &str = "66b1f0c2a9d34e5b7c081f2a";
/// A machine that may boot.
pub(super) const SERVER: &str = "srv-01j9x4k7";
/// A machine that is being built.
pub(super) const BUILDING: &str = "srv-01j9x4k8";
/// The order of the machine that may boot.
pub(super) const ORDERED: &str = "66b204d7a9d34e5b7c083311";
/// A grant, and its ids as the platform has them.
pub(super) const GRANT: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

/// All calls with a document: the last part of the path, and an example.
fn documents() -> Vec<(&'static str, Value)> {
    vec![
        ("location/configure", configure()),
        ("infrastructure/server/provision", provision(ORDERED)),
        ("infrastructure/server/provision", provision("66b204d7a9d34e5b7c083312")),
        ("infrastructure/server/provision", provision("000000000000000000000000")),
        ("infrastructure/server/provision-status", status(SERVER)),
        ("infrastructure/server/provision-check", status(BUILDING)),
        ("infrastructure/server/restart", change(SERVER)),
        ("infrastructure/server/decommission", change(BUILDING)),
        ("infrastructure/server/decommission", change(SERVER)),
        ("infrastructure/ip/allocate", allocate("ipv4", Value::Null)),
        ("infrastructure/ip/allocate", allocate("ipv6", "66b20a90a9d34e5b7c083a7e".into())),
        ("infrastructure/ip/release", release(GRANT, GRANT)),
        ("infrastructure/ip/release", release("4c21", "90f3")),
    ]
}

fn configuration() -> Value {
    json!({"format": 1, "tenant": "acme", "location": "kir1", "binding": "b", "version": "b.3", "configuration": {"vlan": 214}})
}

fn server_meta(server: &str) -> Value {
    json!({"server_id": server, "model_class": "m2", "model_category": "bare-metal",
        "model_id": "66b1f3f0a9d34e5b7c082044", "location_id": "66b1f3a1a9d34e5b7c08200c"})
}

fn ip_meta(pool: Value) -> Value {
    json!({"pool_id": pool, "server_id": ORDERED, "server_model_class": "m2",
        "server_model_category": "bare-metal", "location_id": "66b1f3a1a9d34e5b7c08200c"})
}

fn configure() -> Value {
    json!({"location_id": "kir1", "version": "", "configuration_current": null, "cycle": {"location_id": "66b1f3a1a9d34e5b7c08200c"}})
}

fn provision(ordered: &str) -> Value {
    json!({"hostname": "edge-17.fleet-a.example.net", "model_id": "m2.16c128", "location_id": "kir1", "zone_id": "kir1-b",
        "model_features": {"raid": "raid1", "hypervisor": true, "extra": {"tpm": "2.0"}},
        "provision_options": {"attached_storage_size": null, "storage_size": 900, "encrypt_storage": false, "reservation_id": null},
        "location_configuration": configuration(), "cycle": server_meta(ordered)})
}

fn status(server: &str) -> Value {
    json!({"server_id": server, "location_id": "kir1", "zone_id": "kir1-b",
        "model_features": {"raid": "raid1", "hypervisor": true}, "provision_options": {"encrypt_storage": false},
        "location_configuration": configuration(), "extra": {"build": "bld-7731", "rack": "b-12"}, "cycle": server_meta(ORDERED)})
}

fn change(server: &str) -> Value {
    json!({"server_id": server, "hostname": "edge-17.fleet-a.example.net", "model_id": "m2.16c128", "location_id": "kir1",
        "zone_id": "kir1-b", "extra": {"build": "bld-7731", "rack": "b-12", "bmc": "kir1-b-12-07"}, "cycle": server_meta(ORDERED)})
}

fn allocate(kind: &str, pool: Value) -> Value {
    json!({"kind": kind, "server_id": SERVER, "location_id": "kir1", "zone_id": "kir1-b",
        "location_configuration": configuration(), "cycle": ip_meta(pool)})
}

fn release(ip: &str, assignment: &str) -> Value {
    json!({"kind": "ipv4", "ip_id": format!("ip-{ip}"), "ip_assignment_id": format!("ipa-{assignment}"),
        "cidr": "198.51.100.52/32", "nat_private_ip": null, "zone_id": "kir1-b", "server_id": SERVER, "location_id": "kir1",
        "location_configuration": configuration(), "cycle": ip_meta("66b20a90a9d34e5b7c083a7e".into())})
}

fn auth() -> Value {
    json!({"client_id": "acme-metal", "namespace": "fleet-a", "api_key": KEY, "secret": "w0Jt-RkQ2mZ8",
        "config": "eyJzaXRlIjoibm9ydGgifQ==", "cycle": {"hub_name": "Acme Production", "hub_id": HUB}})
}

/// Returns the body of a call with good credentials, and with any octets as its document.
pub(super) fn wrapped(document: &[u8]) -> Vec<u8> {
    let head = format!("{{\"auth\":{},\"request\":", auth());
    [head.as_bytes(), document, b"}"].concat()
}

/// Returns an input that is sent as it is.
fn plain(method: &str, path: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("\0{method} {path} HTTP/1.1\r\n{headers}\r\n{body}").into_bytes()
}

/// Returns all requests.
pub(super) fn requests() -> Vec<Vec<u8>> {
    let json = "Content-Type: application/json\r\n";
    let bare = json!({"auth": auth(), "request": null}).to_string();
    let bearer = format!("Authorization: Bearer {KEY}\r\n");
    let query =
        format!("/v1/infrastructure/server/provision-status?server_id={SERVER}&location_id=kir1");
    let mut all = vec![
        plain("POST", "/v1/auth/verify", json, &bare),
        plain("GET", "/v1/infrastructure/provider/locations", json, &bare),
        plain("GET", "/v1/infrastructure/provider/locations", "", ""),
        plain("POST", "//v1/infrastructure/provider/server-models/", json, &bare),
        plain("GET", "/v1/infrastructure/provider/server-models", &bearer, ""),
        plain("GET", &query, &bearer, ""),
        plain("GET", "/v1/openapi.json", "", ""),
    ];
    let json = "Content-Type: application/json; charset=utf-8\r\n";
    for (path, document) in documents() {
        let path = format!("/v1/{path}");
        let mut wrapped = plain("POST", &path, json, &document.to_string());
        wrapped[0] = 1;
        let whole = json!({"auth": auth(), "request": document}).to_string();
        all.extend([wrapped, plain("POST", &path, json, &whole)]);
    }
    let mut released = release(GRANT, GRANT);
    released["auth"] = auth();
    all.push(plain("POST", "/v1/infrastructure/ip/release", json, &released.to_string()));
    all
}

/// Returns parts of requests.
pub(super) fn words() -> Vec<Vec<u8>> {
    let words = [
        "GET ",
        "POST ",
        "PUT ",
        "HEAD ",
        "OPTIONS ",
        "/v1",
        "//v1",
        "/",
        "//",
        "?",
        "%2f",
        "%00",
        "%ff",
        "#",
        "/infrastructure",
        "/server",
        "/ip",
        "/provider",
        "/provision-status",
        "/provision-check",
        "/openapi.json",
        "Content-Type: text/plain\r\n",
        "Content-Type: \r\n",
        "Content-Length: 1048577\r\n",
        "Content-Length: 0\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Content-Encoding: gzip\r\n",
        "Expect: 100-continue\r\n",
        "Connection: upgrade\r\n",
        "X-Forwarded-For: 198.51.100.50\r\n",
        "X-Request-Id: a\r\n",
        "Authorization: Bearer \r\n",
        "Authorization: Bearer mk_live_3f9d2c7a51\r\n",
        "\r\n",
        "\r\n\r\n",
        "{",
        "}",
        "[",
        "]",
        "[[[[[[[[",
        "{\"auth\":",
        "\"",
        ",",
        ":",
        "null",
        "true",
        "false",
        "0",
        "-1",
        "1e400",
        "1.5",
        "18446744073709551616",
        "\"\"",
        "\" \"",
        "\\u0000",
        "\\ud800",
        "\\u",
        "\"auth\":null,",
        "\"request\":null,",
        "\"request\":{},",
        "\"auth\"",
        "\"request\"",
        "\"cycle\":{\"hub_id\":\"66b1f0c2a9d34e5b7c081f2b\"},",
        "\"config\":\"e\",",
        "\"api_key\":\"\",",
        "\"secret\":7,",
        "\"server_id\"",
        "\"location_id\"",
        "\"zone_id\"",
        "\"hostname\"",
        "\"kind\":\"ipv5\",",
        "\"cidr\":\"::/0\",",
        "\"a~b/c\":1,",
        "kir2",
        "ip-",
        "ipa-",
        "\u{fe}",
        "\u{feff}",
        "\u{0}",
        "\u{7f}",
    ];
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}
