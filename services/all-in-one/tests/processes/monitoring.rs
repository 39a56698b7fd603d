//! The dashboard and the alert rules in `docs/monitoring`, and the metrics of a server, by Prometheus' own tool.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::network::{Network, OURS};
use super::process::{Place, arguments, get};

const REFERENCE: &str = include_str!("../../../../docs/reference/metrics.md");
const DASHBOARD: &str = include_str!("../../../../docs/monitoring/dashboard.json");
const ALERTS: &str = include_str!("../../../../docs/monitoring/alerts.yaml");

/// Prefixes of our metrics; `grpc_service` and its like are labels.
const PREFIXES: [&str; 3] = ["tinwright_", "grpc_server_", "process_"];

/// Requests of a machine at boot HTTP and at metadata: each leaves a metric that does not exist before.
const REQUESTS: [&str; 4] =
    ["/auto.ipxe", "/autoexec.ipxe", "/files/none", "/v1/boot/none/vmlinuz"];

/// Runs promtool in the folder of the files, with `input`.
fn promtool(words: &str, input: &str) -> Output {
    let mut command = Command::new("promtool");
    command.args(words.split(' ')).current_dir(setup::root().join("docs/monitoring"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool is in the package prometheus");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Asserts that promtool has no complaint.
fn check(words: &str, input: &str) {
    let output = promtool(words, input);
    let text = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {words}: {text}{complaint}");
}

/// Returns the names in the first column of the reference's tables.
fn documented() -> BTreeSet<&'static str> {
    let rows = REFERENCE.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split_once(" | "));
    let names: BTreeSet<_> = cells.flat_map(|(cell, _)| cell.split("`, `")).collect();
    names.into_iter().map(|name| name.trim_end_matches('`')).collect()
}

/// Returns the names of metrics in `text`, without the suffixes of histograms.
fn used(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let names = words.filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix)));
    let suffixes = ["_bucket", "_count", "_sum"];
    names
        .map(|name| suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name))
        .collect()
}

#[test]
fn the_dashboard_and_the_rules_use_exactly_the_documented_metrics() {
    let documented = documented();
    assert!(documented.contains("tinwright_store_commit_seconds") && documented.len() > 40);
    let used: BTreeSet<_> = used(DASHBOARD).union(&used(ALERTS)).copied().collect();
    assert_eq!(used.difference(&documented).collect::<Vec<_>>(), Vec::<&&str>::new());
    assert_eq!(documented.difference(&used).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    check("check config prometheus.yaml", "");
    check("check rules alerts.yaml", "");
    check("test rules alerts_test.yaml", "");
}

#[test]
fn each_alert_has_a_test_and_says_what_to_do() {
    let tests = include_str!("../../../../docs/monitoring/alerts_test.yaml");
    let after = |text: &'static str, start: &'static str| {
        text.lines().filter_map(move |line| line.trim().strip_prefix(start))
    };
    let alerts: Vec<_> = after(ALERTS, "- alert: ").collect();
    assert!(alerts.len() > 30);
    assert_eq!(after(tests, "- name: ").collect::<Vec<_>>(), alerts);
    for annotation in ["summary: ", "action: ", "labels: {severity: "] {
        assert_eq!(after(ALERTS, annotation).count(), alerts.len(), "{annotation}");
    }
}

#[test]
fn each_command_in_the_rules_exists() {
    let text = ALERTS.split_whitespace().collect::<Vec<_>>().join(" ");
    let quoted = text.split('`').skip(1).step_by(2);
    // Arguments begin with a dash or an upper-case letter.
    let is_name = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    let names = |quoted: &str| quoted.split(' ').take_while(is_name).collect::<Vec<_>>().join(" ");
    let commands = quoted.filter(|quoted| quoted.starts_with("tinwright ")).map(names);
    let commands: BTreeSet<_> = commands.filter(|command| command.contains(' ')).collect();
    assert!(commands.len() > 15);
    for command in commands {
        let mut help = Command::new(env!("CARGO_BIN_EXE_tinwright"));
        help.args(command.split(' ').skip(1)).arg("--help");
        let text = String::from_utf8(help.output().unwrap().stdout).unwrap();
        assert!(text.contains(&format!("Usage: {command} ")), "{command}");
    }
}

#[test]
fn each_query_of_the_dashboard_can_be_parsed() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    // As rules, since promtool checks expressions there.
    let mut rules = "groups: [{name: dashboard, rules: [".to_owned();
    let queries: Vec<_> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(queries.len() > 60);
    for query in queries {
        let query = query.replace("$__rate_interval", "1m").replace("$instance", ".*");
        assert!(!query.contains('$'), "{query}");
        rules += &format!(
            "{{record: query, expr: {}, labels: {{n: \"{}\"}}}},\n",
            Value::from(query),
            rules.len()
        );
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), rules + "]}]\n").unwrap();
    check(&format!("check rules {}", file.path().display()), "");
}

/// Rewrites OpenMetrics text in the older format, which is all that promtool reads: counters and infos get the suffixes of their
/// samples, and an info is a gauge.
fn to_older_format(page: &str) -> String {
    let kinds: BTreeMap<_, _> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let name = |family: &str| match kinds.get(family) {
        Some(&"counter") => format!("{family}_total"),
        Some(&"info") => format!("{family}_info"),
        _ => family.to_owned(),
    };
    let line = |line: &str| {
        let comment = line.strip_prefix("# ").and_then(|line| line.split_once(' '));
        match comment.and_then(|(word, rest)| Some((word, rest.split_once(' ')?))) {
            Some(("TYPE", (family, "info"))) => format!("# TYPE {} gauge\n", name(family)),
            Some((word, (family, rest))) => format!("# {word} {} {rest}\n", name(family)),
            None => format!("{line}\n"),
        }
    };
    page.lines().filter(|line| *line != "# EOF").map(line).collect()
}

#[test]
fn promtool_accepts_the_metrics_of_a_server_and_each_is_documented() {
    let network = Network::new(&["52:54:00:00:00:01"]);
    network.set(0, "addr add 198.51.100.50/24 dev eth0");
    network.on_site(async || {
        let words = ["--netboot-interface", "br0", "--metadata-link-local", "br0"];
        let server = Place::new().start(&arguments(&words)).await;
        for path in REQUESTS {
            network.run(0, &format!("curl -s http://{OURS}:7080{path}"));
        }
        network.run(0, &format!("curl -s http://{OURS}:7080/ipxe/undionly.kpxe -o /dev/null"));
        let page = get(server.place.vitals, "/metrics").await.unwrap();
        let page = to_older_format(&page);
        check("check metrics", &page);
        let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let names: BTreeSet<_> = types.map(|(name, _)| name).collect();
        assert!(names.contains("tinwright_netboot_gate_refused_total"), "{names:?}");
        let unknown: Vec<_> = names.difference(&documented()).copied().collect();
        assert!(unknown.is_empty(), "not in docs/reference/metrics.md: {unknown:?}");
    });
}
