//! Each kind of records, and each noun of the contract, has what all of them have, or a reason.

mod contract;

use std::any::type_name;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use runtime::authority::SiteAuthority;
use store::Store;
use store::memory::MemoryStore;
use tinwright::Bounded;
use tinwright::nouns::{NOUNS, NounInfo};

use self::contract::Treatment;
use super::*;
use crate::config::Service;
use crate::services::Services;
use store::records::Kind;

const FILES_PAGE: &str = include_str!("../../../../docs/reference/files.md");

/// Nouns that no service in the table stores, and the reasons.
const NOT_HOSTED: [(&str, &str); 3] = [
    ("boot", "netboot is an edge: its records are not watched"),
    ("lease", "netboot is an edge: it serves its leases itself"),
    ("event", "each service stores the events of its nouns"),
];
/// Nouns whose records are read from the store only, and the reasons.
const NOT_IN_MEMORY: [(&str, &str); 3] = [
    ("certificate", "never watched"),
    ("claim", "never watched: the owners of the objects compare them"),
    ("credential", "found by digest, never watched"),
];
/// Nouns of which files have no objects, and the reasons.
const NOT_APPLIED: [(&str, &str); 11] = [
    ("build", "made with its image"),
    ("image", "its content is uploaded or imported, and does not change"),
    ("certificate", "issued for a key"),
    ("claim", "only services make them"),
    ("credential", "its fields are secrets that are shown once"),
    ("grant", "ordered, then attached: not a wish that can be repeated"),
    ("node", "its agent reports it"),
    ("power job", "an order, which must not be repeated"),
    ("revocation", "made by revoking"),
    ("unknown machine", "seen by netboot"),
    ("event", "recorded with a change"),
];
/// Kinds in the sources that no service shows, and the reasons.
const NOT_SHOWN: [(&str, &str); 2] =
    [("power FormerBmc", "of a migration"), ("power UnclaimedBmc", "of a migration")];

/// A kind of records of a service.
pub(crate) struct HostedKind {
    owner: &'static str,
    /// The name of the type in the sources.
    name: &'static str,
    noun: &'static str,
    has_events: bool,
    treatment: Treatment,
    is_in_memory: bool,
    has_limits: bool,
}

/// Takes the kinds of a service.
pub(super) struct Kinds(pub(super) Vec<HostedKind>, &'static str);

impl Kinds {
    pub(super) fn new(owner: &'static str) -> Self {
        Self(Vec::new(), owner)
    }
}

impl RecordVisitor for Kinds {
    fn records<K: Kind>(&mut self, _: &Records<K>) {
        self.0.push(HostedKind {
            owner: self.1,
            name: type_name::<K>().rsplit("::").next().unwrap_or_default(),
            noun: K::NOUN,
            has_events: K::EVENTS,
            treatment: Treatment::of::<K>(),
            is_in_memory: false,
            has_limits: false,
        });
    }

    fn mirror<K: Kind>(&mut self, mirror: &Mirror<K>) {
        self.records(mirror.records());
        self.0.last_mut().unwrap().is_in_memory = true;
    }

    fn bounded<K: Kind<Record: Bounded>>(&mut self, mirror: &Mirror<K>) {
        self.mirror(mirror);
        self.0.last_mut().unwrap().has_limits = true;
    }
}

fn kinds() -> Vec<HostedKind> {
    let folder = tempfile::tempdir().unwrap();
    let site = Arc::new(SiteAuthority::open(folder.path()).unwrap());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    Services::offline(&store, &site).unwrap().kinds()
}

fn has_reason(list: &[(&str, &str)], name: &str) -> bool {
    list.iter().any(|(listed, _)| *listed == name)
}

/// Returns the kinds in the sources of `service`.
fn kinds_in_sources(service: &str) -> BTreeSet<String> {
    let mut kinds = BTreeSet::new();
    let mut folders = vec![setup::root().join("services").join(service).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                kinds.extend(kinds_in_file(&path));
            }
        }
    }
    kinds
}

fn kinds_in_file(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let implemented = text.lines().filter_map(|line| line.strip_prefix("impl Kind for "));
    let implemented = implemented.filter_map(|line| line.split_once(' '));
    // A declaration has documentation before the name.
    let declared = text.split("store::kind!(").skip(1).filter_map(|declaration| {
        let mut lines = declaration.lines().map(|line| line.trim().replace("pub(crate) ", "pub "));
        let line = lines.find(|line| line.starts_with("pub "))?;
        let (name, _) = line.strip_prefix("pub ")?.split_once(':')?;
        Some(name.to_owned())
    });
    implemented.map(|(name, _)| name.to_owned()).chain(declared).collect()
}

#[test]
fn each_service_shows_each_of_its_kinds_once() {
    let mut shown = BTreeMap::<_, Vec<_>>::new();
    for kind in kinds() {
        shown.entry(kind.owner).or_default().push(kind.name.to_owned());
    }
    let owners = Service::OWNERS.map(|owner| owner.to_string());
    let hosted = owners.iter().filter(|owner| *owner != "netboot").collect::<Vec<_>>();
    assert!(hosted.iter().copied().eq(owners.iter().filter(|it| shown.contains_key(it.as_str()))));
    for (owner, mut shown) in shown {
        shown.sort();
        let is_shown = |kind: &String| !has_reason(&NOT_SHOWN, &format!("{owner} {kind}"));
        let expected: Vec<_> = kinds_in_sources(owner).into_iter().filter(is_shown).collect();
        assert_eq!(shown, expected, "{owner}");
    }
}

#[test]
fn each_noun_of_the_contract_has_what_all_nouns_have_or_a_reason() {
    let kinds = kinds();
    for noun in NOUNS {
        let NounInfo { singular, owner, .. } = *noun;
        let mut of_noun = kinds.iter().filter(|kind| kind.noun == singular && kind.owner == owner);
        match of_noun.next() {
            Some(kind) => check(noun, kind),
            None => assert!(has_reason(&NOT_HOSTED, singular), "no kind of {singular} in {owner}"),
        }
        let is_applied = cli::apply::kinds().any(|kind| kind == noun.message);
        let has_reason_not_to = has_reason(&NOT_APPLIED, singular) || owner == "netboot";
        assert_ne!(is_applied, has_reason_not_to, "apply: {singular}");
        let is_on_page = FILES_PAGE.contains(noun.message);
        assert!(is_on_page || !is_applied, "docs/reference/files.md: {singular}");
    }
}

/// Checks the kind of `noun`.
fn check(noun: &NounInfo, kind: &HostedKind) {
    let NounInfo { message, singular, owner, has_events, states, .. } = *noun;
    kind.treatment.check(message, owner);
    assert_eq!(kind.has_events, has_events, "events of {singular}");
    let has_reason_not_to = has_reason(&NOT_IN_MEMORY, singular);
    assert_ne!(kind.is_in_memory, has_reason_not_to, "in memory: {singular}");
    let has_limits = states.iter().any(|state| state.max_stay.is_some());
    assert_eq!(kind.has_limits, has_limits, "limits of {singular}");
    assert!(kind.is_in_memory || states.is_empty(), "metric of {singular}");
}
