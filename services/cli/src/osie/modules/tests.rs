//! Module sets of small fake kernels.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn set<'a>(index: &'a Index, modules: &[&'static str]) -> Result<ModuleSet<'a>, Error> {
    ModuleSet::new(index, modules.iter().copied())
}

fn index(dep: &str, alias: &str, softdep: &str) -> Index {
    let mut index = Index::default();
    index.add_dep(dep).unwrap();
    index.add_alias(alias);
    index.add_softdep(softdep);
    index
}

const DEP: &str = "\
k/virtio.ko:
k/virtio_ring.ko: k/virtio.ko
k/net/virtio-net.ko: k/virtio_ring.ko k/virtio.ko
k/crc32c_generic.ko:
k/crc32c-avx.ko:
k/libcrc32c.ko:
k/xfs.ko: k/libcrc32c.ko
k/other.ko:
";

const ALIAS: &str = "\
# Aliases extracted from modules themselves.
alias virtio:d00000001v* virtio_net
alias crypto-crc32c crc32c_avx
alias crypto-crc32c crc32c_generic
alias other-device other
";

const SOFT: &str = "softdep libcrc32c pre: crypto-crc32c post: other\n";

#[test]
fn dependencies_are_included_and_loaded_first() {
    let index = index(DEP, ALIAS, "");
    let modules = set(&index, &["virtio_net"]).unwrap();
    let dep = "k/virtio.ko:\nk/net/virtio-net.ko: k/virtio_ring.ko k/virtio.ko\nk/virtio_ring.ko: k/virtio.ko\n";
    assert_eq!(modules.dep(&index), dep);
    assert_eq!(modules.paths(&index).count(), 3);
}

#[test]
fn indirect_dependencies_are_included() {
    let index = index("a.ko: b.ko\nb.ko: c.ko\nc.ko:\n", "", "");
    assert_eq!(load_order(&index, "a"), Ok(vec!["c", "b", "a"]));
}

#[test]
fn of_several_modules_with_an_alias_the_generic_one_is_loaded() {
    let index = index(DEP, ALIAS, SOFT);
    assert_eq!(load_order(&index, "xfs"), Ok(vec!["crc32c_generic", "libcrc32c", "xfs"]));
}

#[test]
fn a_module_for_some_processors_is_no_dependency_where_the_generic_one_is_built_in() {
    let dep = "k/arch/x86/crc32c-avx.ko:\nk/libcrc32c.ko:\n";
    let index = index(dep, "alias crypto-crc32c crc32c_avx\n", SOFT);
    assert_eq!(load_order(&index, "libcrc32c"), Ok(vec!["libcrc32c"]));
}

#[test]
fn loops_of_soft_dependencies_are_cut() {
    let soft = "softdep a pre: b\nsoftdep b pre: a\n";
    let index = index("a.ko:\nb.ko:\n", "", soft);
    assert_eq!(load_order(&index, "a"), Ok(vec!["b", "a"]));
    assert_eq!(load_order(&index, "b"), Ok(vec!["a", "b"]));
}

#[test]
fn a_soft_dependency_that_needs_the_module_is_not_loaded_before_it() {
    let index = index("a.ko:\nb.ko: c.ko\nc.ko: a.ko\n", "", "softdep a pre: b\n");
    assert_eq!(load_order(&index, "a"), Ok(vec!["a"]));
    assert_eq!(load_order(&index, "b"), Ok(vec!["a", "c", "b"]));
}

#[test]
fn missing_soft_dependencies_are_ignored() {
    let index = index("a.ko:\n", "", "softdep a pre: nowhere platform:nothing\n");
    assert_eq!(load_order(&index, "a"), Ok(vec!["a"]));
}

#[test]
fn modules_that_need_each_other_are_refused() {
    let index = index("a.ko: b.ko\nb.ko: a.ko\n", "", "");
    assert_eq!(load_order(&index, "a"), Err(Error::Loop("a".into())));
}

#[test]
fn a_module_that_needs_a_missing_one_is_refused() {
    let index = index("a.ko: b.ko\n", "", "");
    let error = set(&index, &["a"]).unwrap_err();
    assert_eq!(error.to_string(), "module a needs b, which the kernel does not have");
}

#[test]
fn only_aliases_of_included_modules_are_written() {
    let index = index(DEP, ALIAS, "");
    let modules = set(&index, &["virtio-net"]).unwrap();
    assert_eq!(modules.alias(&index), "alias virtio:d00000001v* virtio_net\n");
}

#[test]
fn missing_modules_are_returned() {
    let index = index(DEP, ALIAS, "");
    let modules = set(&index, &["other", "tg3"]).unwrap();
    assert_eq!(modules.missing, ["tg3"]);
    assert_eq!(set(&index, &["tg3"]).unwrap_err(), Error::Nothing);
}

#[test]
fn a_compressed_module_is_refused() {
    assert_eq!(Index::default().add_dep("a.ko.xz:\n"), Err("a.ko.xz:".into()));
}

#[test]
fn built_in_modules_are_not_missing() {
    let place = tempfile::tempdir().unwrap();
    let files = [("dep", "a.ko:\n"), ("alias", ""), ("softdep", ""), ("builtin", "k/loop-x.ko\n")];
    for (name, text) in files {
        std::fs::write(place.path().join(format!("modules.{name}")), text).unwrap();
    }
    let index = Index::read(place.path()).unwrap();
    let modules = set(&index, &["a", "loop_x"]).unwrap();
    assert!(modules.missing.is_empty());
    assert!(modules.contains("a") && !modules.contains("loop_x"));
}

/// Pairs of six modules.
fn pairs() -> impl Strategy<Value = Vec<(u8, u8)>> {
    vec((0_u8..6, 0_u8..6), 0..12)
}

/// A kernel of the modules `m0` to `m5` with these needs and preferences, as from each to each.
fn graph(needs: &[(u8, u8)], prefers: &[(u8, u8)]) -> Index {
    let mut index = Index::default();
    for module in 0..6 {
        let needs = needs.iter().filter(|(from, _)| *from == module);
        let needs: String = needs.map(|(_, to)| format!(" m{to}.ko")).collect();
        index.add_dep(&format!("m{module}.ko:{needs}\n")).unwrap();
    }
    prefers
        .iter()
        .for_each(|(from, to)| index.add_softdep(&format!("softdep m{from} pre: m{to}\n")));
    index
}

proptest! {
    #[test]
    fn any_dependencies_are_ordered_or_refused(needs in pairs(), prefers in pairs()) {
        let _either = set(&graph(&needs, &prefers), &["m0", "m1", "m2"]);
    }

    #[test]
    fn nothing_is_loaded_before_what_it_needs(needs in pairs(), prefers in pairs()) {
        // Needs only go down, so there is no loop in them; preferences go anywhere.
        let needs: Vec<_> = needs.into_iter().filter(|(from, to)| to < from).collect();
        let index = graph(&needs, &prefers);
        let order = load_order(&index, "m5").unwrap();
        for (place, name) in order.iter().enumerate() {
            prop_assert!(index.needs(name).all(|needed| order[..place].contains(&needed)));
        }
    }

    #[test]
    fn any_text_is_accepted(text in "\\PC{0,80}") {
        let mut index = Index::default();
        let _either = index.add_dep(&text);
        index.add_alias(&format!("alias {text}"));
        index.add_softdep(&format!("softdep {text}"));
    }
}
