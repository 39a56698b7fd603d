//! Rules for dependencies between crates, and between the modules of a crate.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The crates of ours that each library may import; a library that is not here may import the contract only.
const LIBRARIES: [(&str, &[&str]); 19] = [
    ("actions", &[]),
    ("fleet", &["tinwright", "store", "runtime"]),
    ("machine", &["tinwright", "runtime"]),
    ("nouns", &["tinwright", "store", "runtime"]),
    ("dhcp", &[]),
    ("ipxe-script", &["tinwright"]),
    ("iso-arguments", &[]),
    ("syslog", &[]),
    ("tftp", &[]),
    ("mounts", &[]),
    ("containers", &[]),
    ("disk-images", &[]),
    ("file-stream", &[]),
    ("image-signature", &[]),
    ("range-cache", &[]),
    ("sandbox", &["containers"]),
    ("site-archive", &["image-signature"]),
    ("yaml", &[]),
    ("pinned-tls", &[]),
];
/// The libraries that some services are built from, besides those that every service may import.
const SERVICE_LIBRARIES: [&str; 20] = [
    "actions",
    "fleet",
    "dhcp",
    "syslog",
    "tftp",
    "imageapi",
    "ipxe-script",
    "iso-arguments",
    "mounts",
    "containers",
    "disk-images",
    "file-stream",
    "image-signature",
    "machine",
    "pinned-tls",
    "range-cache",
    "sandbox",
    "site-archive",
    "stored-image",
    "yaml",
];
/// The crates that name services: the program, what drives it from outside, and what feeds its codecs.
const NAMES_SERVICES: [&str; 4] = ["all-in-one", "fuzz", "load", "rack"];
/// Programs on machines and in clouds of other people, and the libraries they are made of: they contain no store.
const STORELESS: [&str; 11] = [
    "runtime",
    "machine",
    "worker",
    "imageapi",
    "mounts",
    "containers",
    "node-agent",
    "builder",
    "cpi",
    "cli",
    "gateway",
];
/// Libraries that turn bytes and values into bytes and values: no socket, clock, store or gRPC.
const PURE: [&str; 9] = [
    "actions",
    "dhcp",
    "image-signature",
    "imageapi",
    "iso-arguments",
    "site-archive",
    "syslog",
    "tftp",
    "yaml",
];
/// Crates that pure libraries may not import.
const IMPURE_IMPORTS: [&str; 8] =
    ["tokio", "tonic", "hyper", "reqwest", "socket2", "rustix", "store", "runtime"];
/// Paths that pure libraries may not name.
const IMPURE_PATHS: [&str; 7] = [
    "std::net::UdpSocket",
    "std::net::TcpStream",
    "std::net::TcpListener",
    "Instant::now",
    "SystemTime::now",
    "std::fs",
    "std::thread",
];

fn members() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version=1"])
        .env_remove("RUSTC_BOOTSTRAP")
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}

/// The folder of `package`.
fn folder(package: &Value) -> &Path {
    Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap()
}

/// The dependencies of `package`, without those of tests.
fn imports(package: &Value) -> BTreeSet<&str> {
    let dependencies = package["dependencies"].as_array().unwrap();
    dependencies.iter().filter(|d| d["kind"].is_null()).map(name).collect()
}

/// True if `package` lies below the folder `kind` of the workspace.
fn is_below(package: &Value, kind: &str) -> bool {
    folder(package).starts_with(Path::new(env!("CARGO_MANIFEST_DIR")).join(kind))
}

#[test]
fn libraries_import_what_is_below_them_and_the_contract_none_of_us() {
    let members = members();
    let ours: BTreeSet<_> = members.iter().map(name).collect();
    for package in members.iter().filter(|p| is_below(p, "libs") || name(p) == "tinwright") {
        let allowed = match LIBRARIES.iter().find(|(library, _)| *library == name(package)) {
            _ if name(package) == "tinwright" => &[][..],
            Some((_, allowed)) => allowed,
            None => &["tinwright"],
        };
        for import in imports(package).intersection(&ours) {
            assert!(allowed.contains(import), "{} imports {import}", name(package));
        }
    }
}

#[test]
fn services_meet_only_in_the_program() {
    let members = members();
    let ours: BTreeSet<_> = members.iter().map(name).collect();
    let services = members.iter().filter(|package| is_below(package, "services"));
    for package in services.filter(|package| !NAMES_SERVICES.contains(&name(package))) {
        for import in imports(package).intersection(&ours) {
            let library = ["tinwright", "store", "runtime", "nouns"].contains(import);
            let library = library || SERVICE_LIBRARIES.contains(import);
            assert!(library, "{} imports {import}: call it over gRPC", name(package));
        }
    }
}

#[test]
fn no_store_comes_along_to_machines() {
    for package in members().iter().filter(|package| STORELESS.contains(&name(package))) {
        assert!(!imports(package).contains("store"), "{}", name(package));
    }
}

#[test]
fn pure_libraries_have_no_socket_clock_store_or_grpc() {
    for package in members().iter().filter(|package| PURE.contains(&name(package))) {
        let impure: Vec<_> =
            imports(package).into_iter().filter(|import| IMPURE_IMPORTS.contains(import)).collect();
        assert!(impure.is_empty(), "{} imports {impure:?}", name(package));
        for file in sources(&folder(package).join("src")) {
            let code = code(&fs::read_to_string(&file).unwrap());
            let found = IMPURE_PATHS.iter().find(|path| code.contains(**path));
            assert_eq!(found, None, "{}", file.display());
        }
    }
}

#[test]
fn no_more_than_two_modules_import_each_other() {
    let mut wrong = Vec::new();
    for package in members() {
        let src = folder(&package).join("src");
        let programs = fs::read_dir(src.join("bin")).into_iter().flatten();
        let roots = programs.map(|program| program.unwrap().path()).chain([src]);
        let imports: Vec<_> = roots.map(|root| module_imports(&root)).collect();
        let cycles = imports.iter().map(|imports| (largest_cycle(imports), imports));
        let (cycle, imports) = cycles.max_by_key(|(cycle, _)| cycle.len()).unwrap();
        if cycle.len() > 2 {
            wrong.push(format!("{}: these import each other:", name(&package)));
            wrong.extend(
                cycle
                    .iter()
                    .map(|module| format!("  {module} imports {:?}", &imports[module] & &cycle)),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// All Rust files below `folder`; those of programs of its own (`bin`) and of tests are left out.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files = Vec::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        match path.file_name().and_then(|name| name.to_str()).unwrap() {
            "bin" | "tests" | "tests.rs" => {}
            _ if path.is_dir() => files.extend(sources(&path)),
            name if name.ends_with(".rs") => files.push(path),
            _ => {}
        }
    }
    files
}

/// The modules at the top of the crate in `src`, and which others each names by a `crate::` or `super::` path.
fn module_imports(src: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let files = sources(src);
    let depth = |file: &Path| file.strip_prefix(src).unwrap().components().count();
    let module = |file: &Path| {
        let top = file.strip_prefix(src).unwrap().iter().next().unwrap();
        top.to_str().unwrap().trim_end_matches(".rs").to_owned()
    };
    let modules: BTreeSet<_> = files.iter().map(|file| module(file)).collect();
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| !matches!(&*module(file), "lib" | "main")) {
        let text = code(&fs::read_to_string(file).unwrap());
        // In a file directly below src, `super` is the crate's root.
        let up = "super::".repeat(depth(file));
        let mut named = paths(&text, "crate::");
        named.extend(paths(&text, &up));
        named.retain(|other| modules.contains(other) && *other != module(file));
        imports.entry(module(file)).or_default().extend(named);
    }
    imports
}

/// `text` without comments, literal strings and the module of unit tests at its end.
fn code(text: &str) -> String {
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
    let (mut code, mut rest) = (String::new(), text);
    while let Some(letter) = rest.chars().next() {
        let skipped = literal_or_comment(rest, code.chars().next_back());
        if skipped == 0 {
            code.push(letter);
        }
        rest = &rest[skipped.max(letter.len_utf8())..];
    }
    code
}

/// The length of the comment or literal that `rest` begins with, if it begins with one, coming after the letter `before`.
fn literal_or_comment(rest: &str, before: Option<char>) -> usize {
    let until = |from: usize, end: &str| {
        rest[from..].find(end).map_or(rest.len(), |found| from + found + end.len())
    };
    let fences =
        rest.strip_prefix('r').map_or(0, |raw| raw.len() - raw.trim_start_matches('#').len());
    let in_name = before.is_some_and(|c| c != 'b' && (c.is_alphanumeric() || c == '_'));
    match rest.as_bytes() {
        [b'/', b'/', ..] => rest.find('\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => until(2, "*/"),
        [b'r', ..] if !in_name && rest[1 + fences..].starts_with('"') => {
            until(2 + fences, &format!("\"{}", "#".repeat(fences)))
        }
        [b'"', ..] => {
            let mut escaped = false;
            let end = rest[1..].find(|letter| {
                let ends = letter == '"' && !escaped;
                escaped = letter == '\\' && !escaped;
                ends
            });
            end.map_or(rest.len(), |end| end + 2)
        }
        [b'\'', b'\\', _, ..] => until(3, "'"),
        [b'\'', _, b'\'', ..] => 3,
        _ => 0,
    }
}

/// The first names after each `prefix` in `text`, those in braces included, however deep.
fn paths(text: &str, prefix: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, _) in text.match_indices(prefix) {
        // `$crate::` and `super::super::` are other paths.
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ':' | '$')) {
            continue;
        }
        let rest = &text[at + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(group) => names.extend(members_of(group)),
            None => names.extend(first_name(rest)),
        }
    }
    names
}

/// The first names of the members of a group whose opening brace was cut off.
fn members_of(group: &str) -> Vec<String> {
    let (mut depth, mut begin, mut names) = (1, 0, Vec::new());
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && letter == ',') {
            names.extend(first_name(&group[begin..at]));
            begin = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    names
}

fn first_name(path: &str) -> Option<String> {
    let path = path.trim_start();
    let end = path.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(path.len());
    (end > 0).then(|| path[..end].to_owned())
}

/// The largest set of modules each of which reaches every other one.
fn largest_cycle(imports: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let reached = |from: &String| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(module) = open.pop() {
            for next in imports.get(module).into_iter().flatten() {
                if reached.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        reached
    };
    let reach: BTreeMap<_, _> = imports.keys().map(|module| (module, reached(module))).collect();
    let cycle = |(module, reached): (&&String, &BTreeSet<String>)| -> BTreeSet<String> {
        let back = |other: &&String| reach.get(other).is_some_and(|r| r.contains(*module));
        reached.iter().filter(back).cloned().collect()
    };
    reach.iter().map(cycle).max_by_key(BTreeSet::len).unwrap_or_default()
}

#[test]
fn names_are_read_out_of_paths_and_nested_groups() {
    let names = |text: &str| paths(&code(text), "crate::").into_iter().collect::<Vec<_>>();
    assert_eq!(names("use crate::a::{b, c};\nlet x = crate::d::e();"), ["a", "d"]);
    assert_eq!(names("use crate::{a::{b, c::{d}}, e,\n    f::g as h};"), ["a", "e", "f"]);
    assert_eq!(names("let x = ('\"', b'\\'', 'a'..); f::<'a>(crate::b)"), ["b"]);
    assert_eq!(
        names(
            "// crate::a\nlet x = (\"\\\"crate::b\", '\"', b'\\'', r#\"crate::c\"d\"#); $crate::e!(); /// [`crate::f`]"
        ),
        [""; 0]
    );
    assert_eq!(paths("use super::super::a; use super::b;", "super::super::").len(), 1);
    assert_eq!(paths("use super::super::a;", "super::"), BTreeSet::from(["super".to_owned()]));
}

#[test]
fn a_cycle_is_what_reaches_itself_and_all_of_its_members() {
    let graph = |edges: &[(&str, &str)]| {
        let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in edges {
            imports.entry((*from).into()).or_default().insert((*to).into());
        }
        largest_cycle(&imports).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]), ["a", "b", "c"]);
    assert_eq!(graph(&[("a", "b"), ("b", "c"), ("a", "c")]), [""; 0]);
}
