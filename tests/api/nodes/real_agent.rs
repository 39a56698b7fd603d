//! The program `tinwright-node` with a server: a real agent, containers of this host, and the gateway.
//!
//! As the program's own tests, these need root, busybox-static, e2fsprogs, squashfs-tools and Python 3. Each has a mount namespace of its own.
//!
//! - `node`: server and program; `proxy`: the connection between them, which the tests cut. `host`: the place of a test, as in
//!   the program's tests.

#[path = "../../../services/node-agent/tests/program/host.rs"]
#[allow(dead_code, reason = "only the program's own tests use all of it")]
mod host;
mod node;
mod proxy;

use std::fs;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::{Method, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use setup::pages::{Block, typed};

use self::host::{Host, on_host};
use self::node::{Agent, NODE, RealNode};
use self::proxy::Direction;
use super::door::ImageApi;
use crate::support::until;

const CONTAINERS: &str = "/imageapi/v1/container";
/// The seed of the positions of cuts.
const SEED: u64 = 17;
/// The time after which an identity ends. On a busy host the agent needs much of it to start and to read the identity.
const LAST_LIFETIME: Duration = Duration::from_secs(20);

/// Runs `test` with the place of a test. Its server and its agent are in the mount namespace of that place.
fn run(test: impl AsyncFnOnce(&Host) + Send + 'static) {
    on_host(|host| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(test(host));
    });
}

/// Runs a program in Python of the node agent's tests, and returns what it printed.
fn python(program: &str, arguments: &[&str]) -> String {
    let path = setup::root().join("services/node-agent/tests").join(program);
    let output = Command::new("python3").arg(path).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Returns a container in the image of the place, whose program runs until it is stopped.
fn container(host: &Host) -> Value {
    let bind = json!({"kind": "bind", "bind": {"base": "root", "path": host.text("image")}});
    json!({"command": "/bin/sleep 1000", "mount": bind})
}

/// Returns the containers that a client sees.
async fn containers(api: &ImageApi) -> Vec<Value> {
    let (status, listed) = api.send(Method::GET, CONTAINERS, &[], None).await;
    assert_eq!(status, StatusCode::OK, "{listed}");
    listed.as_array().unwrap().clone()
}

/// Returns the answer of the node. Calls are refused while it is not connected.
async fn answer(
    gateway: &ImageApi,
    method: &Method,
    target: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> (StatusCode, Value) {
    let mut answer = (StatusCode::SERVICE_UNAVAILABLE, Value::Null);
    let is_there = async || {
        answer = gateway.send(method.clone(), target, headers, body.cloned()).await;
        answer.0 != StatusCode::SERVICE_UNAVAILABLE
    };
    until(is_there, "the node is connected").await;
    answer
}

/// Waits until nothing is mounted any more.
async fn until_unmounted(socket: &ImageApi) {
    let is_empty = async || {
        let (_, mounts) = socket.send(Method::GET, "/imageapi/v1/mount", &[], None).await;
        mounts == json!([])
    };
    until(is_empty, "nothing is mounted").await;
}

/// Returns the process ids of the first programs of running containers.
fn first_processes(host: &Host) -> Vec<i64> {
    let state = |run: String| -> Value {
        serde_json::from_str(&host.read(&format!("state/runs/{run}/state.json")))
            .unwrap_or_default()
    };
    let runs = host.entries("state/runs").into_iter().map(state);
    runs.filter_map(|state| state["phase"]["running"]["process"]["pid"].as_i64()).collect()
}

#[test]
fn a_generated_client_gets_the_same_answers_at_the_gateway_and_on_the_node() {
    run(async |host| {
        host.client_images();
        let node = RealNode::start(host).await;
        let _agent = node.start_agent().await;
        node.until_connected(true).await;
        let [identity, authority] = node.write_operator();
        let (socket, place) = (format!("unix:{}", host.text("socket")), host.text(""));
        let gateway = format!("https://{}", node.server.gateway);
        let files = ["socket.json", "header.json", "path.json"].map(|name| host.text(name));
        let journey = |address: &str, record: &str, options: &[&str]| {
            let common = ["journey", address, &place, "--record", record];
            let tls = ["--authority", &authority, "--identity", &identity];
            python("client.py", &[&common[..], &tls, options].concat());
        };
        journey(&socket, &files[0], &[]);
        journey(&gateway, &files[1], &["--node", NODE]);
        journey(&gateway, &files[2], &["--base", &format!("/nodes/{NODE}/imageapi/v1")]);
        let compared = python("same_journeys.py", &files.each_ref().map(String::as_str));
        assert!(compared.ends_with(" requests and their answers are equal\n"), "{compared}");
        node.server.end().await;
    });
}

#[test]
fn a_call_whose_result_is_cut_off_is_done_once_and_answered() {
    run(async |host| {
        let node = RealNode::start(host).await;
        let _agent = node.start_agent().await;
        node.until_connected(true).await;
        let (gateway, socket) = (node.gateway(), node.socket());
        let key = [("Idempotency-Key", "order-1")];
        node.proxy.hold_up(true);
        let call = gateway.send(Method::POST, CONTAINERS, &key, Some(container(host)));
        let cut = async {
            // The container is there, and its result is not.
            until(async || containers(&socket).await.len() == 1, "the call is done").await;
            node.proxy.cut();
            // Released earlier, the result could still be transmitted.
            node.until_connected(false).await;
            node.proxy.hold_up(false);
        };
        let ((status, first), ()) = tokio::join!(call, cut);
        assert_eq!(status, StatusCode::CREATED, "{first}");
        let again = gateway.send(Method::POST, CONTAINERS, &key, Some(container(host))).await;
        assert_eq!(again, (status, first.clone()));
        assert_eq!(containers(&socket).await.len(), 1);
        let delete = format!("{CONTAINERS}?id={}", first["id"]);
        let (status, _) = gateway.send(Method::DELETE, &delete, &[], None).await;
        assert_eq!(status, StatusCode::OK);
        until_unmounted(&socket).await;
        node.server.end().await;
    });
}

#[test]
fn calls_are_done_once_wherever_their_stream_is_cut() {
    run(async |host| {
        let node = RealNode::start(host).await;
        let _agent = node.start_agent().await;
        node.until_connected(true).await;
        let (gateway, socket) = (node.gateway(), node.socket());
        let mut random = SEED;
        for n in 0..5 {
            for (method, count) in [(Method::POST, 1), (Method::DELETE, 0)] {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let position = usize::try_from(random >> 33).unwrap() % 300;
                let cut = if n % 2 == 0 { Direction::Up } else { Direction::Down };
                node.proxy.cut_after(Some((cut, position)));
                let key = format!("{method}-{n}");
                let key = [("Idempotency-Key", key.as_str())];
                let (target, body) = match containers(&socket).await.first() {
                    Some(created) => (format!("{CONTAINERS}?id={}", created["id"]), None),
                    None => (CONTAINERS.to_owned(), Some(container(host))),
                };
                let first = answer(&gateway, &method, &target, &key, body.as_ref()).await;
                let case = format!("seed {SEED}, {method} {n}, cut {cut:?} after {position}");
                assert!(first.0.is_success(), "{case}: {first:?}");
                assert_eq!(containers(&socket).await.len(), count, "{case}");
                let again = answer(&gateway, &method, &target, &key, body.as_ref()).await;
                assert_eq!(again, first, "{case}");
                assert_eq!(containers(&socket).await.len(), count, "{case}");
            }
        }
        assert!(node.proxy.cuts() >= 5, "{} cuts", node.proxy.cuts());
        until_unmounted(&socket).await;
        node.server.end().await;
    });
}

#[test]
fn a_node_goes_on_while_its_server_or_its_agent_is_away_and_when_its_identity_has_ended() {
    run(async |host| {
        let node = RealNode::start(host).await;
        let bind = json!({"bind": {"base": "BASE_ROOT", "path": host.text("image")}});
        let os = json!({"name": "os", "command": "/bin/sleep 1000", "mount": bind});
        node.assign_stack(os).await;
        let agent = node.start_agent().await;
        node.until_active().await;
        let (gateway, socket) = (node.gateway(), node.socket());
        let (before, process) = (containers(&socket).await, first_processes(host));
        assert_eq!((&before[0]["name"], before.len()), (&json!("os"), 1));
        assert_eq!(containers(&gateway).await, before);
        type_documented_calls(&node).await;

        server_away(host, &node, &before).await;
        assert_eq!(first_processes(host), process);

        agent.kill();
        node.until_connected(false).await;
        // The identity in the journal is used, and no token.
        node.write_command_line("none");
        let agent = node.start_agent().await;
        node.until_connected(true).await;
        assert_eq!(
            (containers(&gateway).await, first_processes(host)),
            (before.clone(), process.clone())
        );
        node.until_active().await;

        node.proxy.close();
        agent.kill();
        end_identity(host);
        let agent = node.start_agent().await;
        agent.until_logged("the certificate has expired").await;
        assert_eq!((containers(&socket).await, first_processes(host)), (before, process.clone()));
        // The stack is kept: what ends is started again.
        let first = Pid::from_raw(process[0].try_into().unwrap()).unwrap();
        kill_process(first, Signal::KILL).unwrap();
        let is_again = async || first_processes(host).iter().any(|pid| *pid != process[0]);
        until(is_again, "the container runs again").await;

        // Without the control plane, nobody keeps the stack.
        agent.kill();
        let _agent = Agent::start(host, &[]).await;
        let delete = format!("{CONTAINERS}?name=os&force=true");
        let (status, _) = socket.send(Method::DELETE, &delete, &[], None).await;
        assert_eq!(status, StatusCode::OK);
        until_unmounted(&socket).await;
        node.server.end().await;
    });
}

/// Types the calls of the documents, with the name of this node and the gateway of this server. The answers are those of the node itself.
async fn type_documented_calls(node: &RealNode<'_>) {
    let credential = json!({"credential": {"role": "ROLE_OPERATOR"}});
    let created = node.admin.call("IdentityService/CreateCredential", credential).await.unwrap();
    let key = created["api_key"].as_str().unwrap();
    let gateway = node.server.gateway.to_string();
    let options =
        "curl() { command curl --silent --fail-with-body --noproxy '*' --max-time 40 \"$@\"; }";
    let blocks =
        [typed("docs/gateway.md", "The ImageAPI"), typed("docs/imageapi.md", "Calls")].concat();
    for command in blocks.iter().flat_map(Block::commands) {
        let command = command.replace("n07", NODE).replace("127.0.0.1:8080", &gateway);
        let mut shell = tokio::process::Command::new("bash");
        shell.args(["-euc", &format!("{options}; {command}")]).env("KEY", key);
        let output = shell.current_dir(node.server.dir.path()).output().await.unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{command}: {error}: {output:?}"));
        let kind = command.rsplit('/').next().unwrap();
        let path = format!("/imageapi/v1/{kind}");
        let (_, expected) = node.socket().send(Method::GET, &path, &[], None).await;
        assert_eq!((&answer, output.status.success()), (&expected, true), "{command}");
        assert!(answer.as_array().is_some_and(|it| !it.is_empty()), "{command}: {answer}");
    }
}

/// Keeps the server away for a while: the containers stay `before`, and the node's socket works. Then its stream is there again.
async fn server_away(host: &Host, node: &RealNode<'_>, before: &[Value]) {
    let (gateway, socket) = (node.gateway(), node.socket());
    node.proxy.close();
    node.until_connected(false).await;
    let (status, error) = gateway.send(Method::GET, CONTAINERS, &[], None).await;
    assert_eq!((status, &error["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!(503)));
    let (status, created) = socket.send(Method::POST, CONTAINERS, &[], Some(container(host))).await;
    assert_eq!(status, StatusCode::CREATED, "{created}");
    let delete = format!("{CONTAINERS}?id={}", created["id"]);
    let (status, _) = socket.send(Method::DELETE, &delete, &[], None).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(containers(&socket).await, before);
    node.proxy.open();
    node.until_connected(true).await;
    assert_eq!(containers(&gateway).await, before);
}

/// Lets the identity in the journal of the agent, which does not run, end in [`LAST_LIFETIME`].
fn end_identity(host: &Host) {
    let path = host.path("state/control-plane/identity.json");
    let mut identity: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let end = (now + LAST_LIFETIME).as_secs();
    identity["certificate"]["expires"] = json!({"secs_since_epoch": end, "nanos_since_epoch": 0});
    fs::write(&path, identity.to_string()).unwrap();
}
