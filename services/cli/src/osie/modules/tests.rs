//! Choosing modules from small made-up kernels.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::osie::choice::When;

fn group(modules: &'static [&'static str]) -> [Group; 1] {
    [Group { reason: "a test", when: When::Asked, modules }]
}

fn index(dep: &str, alias: &str, softdep: &str) -> Index {
    let mut index = Index::default();
    index.take_dep(dep).unwrap();
    index.take_alias(alias);
    index.take_softdep(softdep);
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
fn what_is_needed_comes_with_it_and_is_loaded_first() {
    let index = index(DEP, ALIAS, "");
    let choice = Choice::new(&index, &group(&["virtio_net"])).unwrap();
    let dep = "k/virtio.ko:\nk/net/virtio-net.ko: k/virtio_ring.ko k/virtio.ko\nk/virtio_ring.ko: k/virtio.ko\n";
    assert_eq!(choice.dep(&index), dep);
    assert_eq!(choice.paths(&index).count(), 3);
}

#[test]
fn what_depmod_left_to_be_followed_is_followed() {
    let index = index("a.ko: b.ko\nb.ko: c.ko\nc.ko:\n", "", "");
    assert_eq!(load_order(&index, "a"), Ok(vec!["c", "b", "a"]));
}

#[test]
fn the_generic_one_of_several_soft_dependencies_comes_first_of_all() {
    let index = index(DEP, ALIAS, SOFT);
    assert_eq!(load_order(&index, "xfs"), Ok(vec!["crc32c_generic", "libcrc32c", "xfs"]));
}

#[test]
fn soft_dependencies_upon_each_other_are_cut() {
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
fn a_soft_dependency_that_the_kernel_lacks_is_passed_over() {
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
    let error = Choice::new(&index, &group(&["a"])).unwrap_err();
    assert_eq!(error.to_string(), "module a needs b, which the kernel does not have");
}

#[test]
fn only_aliases_of_the_chosen_are_kept() {
    let index = index(DEP, ALIAS, "");
    let choice = Choice::new(&index, &group(&["virtio-net"])).unwrap();
    assert_eq!(choice.alias(&index), "alias virtio:d00000001v* virtio_net\n");
}

#[test]
fn what_the_kernel_lacks_is_told() {
    let index = index(DEP, ALIAS, "");
    let choice = Choice::new(&index, &group(&["other", "tg3"])).unwrap();
    assert_eq!(choice.absent, ["tg3"]);
    assert_eq!(Choice::new(&index, &group(&["tg3"])).unwrap_err(), Error::Nothing);
}

#[test]
fn a_compressed_module_is_refused() {
    assert_eq!(Index::default().take_dep("a.ko.xz:\n"), Err("a.ko.xz:".into()));
}

/// A kernel in a directory, as depmod leaves it.
#[test]
fn what_is_built_in_is_not_missed() {
    let place = tempfile::tempdir().unwrap();
    let files = [("dep", "a.ko:\n"), ("alias", ""), ("softdep", ""), ("builtin", "k/loop-x.ko\n")];
    for (name, text) in files {
        std::fs::write(place.path().join(format!("modules.{name}")), text).unwrap();
    }
    let index = Index::read(place.path()).unwrap();
    let choice = Choice::new(&index, &group(&["a", "loop_x"])).unwrap();
    assert!(choice.absent.is_empty());
    assert!(choice.holds("a") && !choice.holds("loop_x"));
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
        index.take_dep(&format!("m{module}.ko:{needs}\n")).unwrap();
    }
    prefers
        .iter()
        .for_each(|(from, to)| index.take_softdep(&format!("softdep m{from} pre: m{to}\n")));
    index
}

proptest! {
    #[test]
    fn modules_in_any_tangle_are_ordered_or_refused(needs in pairs(), prefers in pairs()) {
        let _either = Choice::new(&graph(&needs, &prefers), &group(&["m0", "m1", "m2"]));
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
    fn any_text_is_read(text in "\\PC{0,80}") {
        let mut index = Index::default();
        let _either = index.take_dep(&text);
        index.take_alias(&format!("alias {text}"));
        index.take_softdep(&format!("softdep {text}"));
    }
}
