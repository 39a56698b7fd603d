//! The output of `get -o yaml` and `list -o yaml` for every object changes nothing when it is applied.

use serde_json::Value;

use super::{Operator, life, rack};

/// The commands of all kinds that `apply` takes, with the parts of an object that they can print.
const KINDS: [(&str, &[&str]); 12] = [
    ("tenant", &["basic"]),
    ("location", &["basic"]),
    ("model", &["basic"]),
    ("subnet", &["basic"]),
    ("range", &["basic"]),
    ("address binding", &["basic"]),
    ("template", &["basic"]),
    ("hardware", &["basic", "full"]),
    ("power bmc", &["basic"]),
    ("stack", &["basic"]),
    ("instance", &["basic", "full"]),
    ("workflow", &["basic", "full"]),
];

/// Kinds whose objects a server changes by itself meanwhile.
const ALIVE: [&str; 2] = ["instance", "workflow"];

/// Returns all objects of `kind` as programs read them, with their revisions.
async fn objects(operator: &Operator, kind: &str) -> Vec<Value> {
    serde_json::from_str(&operator.ok(&format!("{kind} list -o json --view full")).await).unwrap()
}

/// Applies the folder `path`. Returns the number of its objects, all of which are unchanged.
async fn unchanged(operator: &Operator, path: &str) -> usize {
    let printed = operator.ok(&format!("apply -f {path}")).await;
    let changed: Vec<_> = printed.lines().filter(|line| !line.ends_with(" unchanged")).collect();
    assert!(changed.is_empty(), "{changed:#?}");
    printed.lines().count()
}

#[tokio::test]
async fn what_get_and_list_print_of_a_rack_is_unchanged() {
    let operator = Operator::start().await;
    life::rack(&operator).await;
    let (mut before, mut count, mut folders) = (Vec::new(), 0, [String::new(), String::new()]);
    for (kind, views) in KINDS {
        let stored = objects(&operator, kind).await;
        assert!(!stored.is_empty(), "{kind}");
        let file = kind.replace(' ', "-");
        for view in views {
            count += stored.len();
            let listed = operator.ok(&format!("{kind} list -o yaml --view {view}")).await;
            folders[0] = operator.file(&format!("list/{file}-{view}.yaml"), &listed);
            for (number, object) in stored.iter().enumerate() {
                let id = object["id"].as_str().unwrap();
                let one = operator.ok(&format!("{kind} get {id} -o yaml --view {view}")).await;
                folders[1] = operator.file(&format!("get/{file}-{view}-{number}.yaml"), &one);
            }
        }
        before.push(stored);
    }
    assert_eq!((before[7].len(), before[8].len()), (rack::MACHINES, rack::BMCS));
    for folder in folders {
        let folder = folder.rsplit_once('/').unwrap().0;
        assert_eq!(unchanged(&operator, folder).await, count, "{folder}");
    }
    for ((kind, _), before) in KINDS.into_iter().zip(before) {
        if !ALIVE.contains(&kind) {
            assert_eq!(objects(&operator, kind).await, before, "nothing of {kind} was written");
        }
    }
    operator.end().await;
}

#[tokio::test]
async fn a_change_in_what_was_printed_is_applied_and_nothing_else() {
    let operator = Operator::start().await;
    let text = "kind: Hardware\nname: a\nlabels: {rack: r1}\ninterfaces: [{mac: 52-54-00-00-01-01, netboot: {ipxe: {contents: '#!ipxe'}}}]\n";
    let path = operator.file("a.yaml", text);
    operator.ok(&format!("apply -f {path}")).await;
    let printed = operator.ok("hardware get a -o yaml").await;
    assert!(!printed.contains("#!ipxe"), "the script is a secret");
    let path = operator.file("a.yaml", &printed.replace("rack: r1", "rack: r2"));
    let applied = operator.ok(&format!("apply -f {path} --diff")).await;
    assert!(
        applied.starts_with("hardware/a changed\n") && applied.contains("+  rack: r2"),
        "{applied}"
    );
    let full = operator.ok("hardware get a -o json --view full").await;
    let full: Value = serde_json::from_str(&full).unwrap();
    assert_eq!(full["labels"]["rack"], "r2");
    assert_eq!(full["interfaces"][0]["netboot"]["ipxe"]["contents"], "#!ipxe");
    operator.end().await;
}
