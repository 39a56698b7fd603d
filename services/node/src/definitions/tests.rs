use tinwright::node::v1::attachment::RbdOptions;
use tinwright::node::v1::mount::{AttachmentMount, Nfs, Overlay};

use super::*;

fn mount(definition: Mounted) -> pb::Mount {
    pb::Mount { definition: Some(definition), ..pb::Mount::default() }
}

fn nfs() -> pb::Mount {
    mount(Mounted::Nfs(Nfs { host: "nas".into(), path: "/x".into(), ..Nfs::default() }))
}

fn container(mount: pb::Mount) -> pb::Container {
    pb::Container {
        name: "os".into(),
        command: "/sbin/init".into(),
        mount: Some(mount),
        ..pb::Container::default()
    }
}

fn rbd(secret: &str) -> pb::Mount {
    let options = RbdOptions { name: "ro".into(), secret: secret.into(), ..RbdOptions::default() };
    let rbd = Rbd {
        monitors: vec!["10.0.0.1".into()],
        pool: "images".into(),
        image: "compute".into(),
        options: Some(options),
        ..Rbd::default()
    };
    let attach = pb::Attachment { definition: Some(Attached::Rbd(rbd)), ..Default::default() };
    let attach = AttachmentMount {
        attach: Some(Box::new(attach)),
        fs_type: "squashfs".into(),
        ..AttachmentMount::default()
    };
    mount(Mounted::Attach(Box::new(attach)))
}

fn overlay(lower: Vec<pb::Mount>) -> pb::Mount {
    mount(Mounted::Overlay(Overlay { lower, ..Overlay::default() }))
}

/// Returns the paths of wrong fields.
fn wrong(containers: &mut [pb::Container]) -> Vec<String> {
    let mut wrong = Violations::default();
    normalize(containers, &mut wrong);
    wrong.iter().map(|it| it.field.clone()).collect()
}

#[test]
fn a_nested_definition_is_stored_to_run_and_without_what_a_node_sets() {
    let mut stack = [container(overlay(vec![rbd("key"), nfs()]))];
    stack[0].logfile = "/var/log/x".into();
    stack[0].mount.as_mut().unwrap().mountpoint = "/run/x".into();
    assert_eq!(wrong(&mut stack), [""; 0]);
    assert_eq!(stack[0].state(), State::Running);
    assert_eq!((stack[0].logfile.as_str(), stack[0].refs), ("", 0));
    assert_eq!(stack[0].mount.as_ref().unwrap().mountpoint, "");
}

#[test]
fn wrong_fields_are_named_with_their_paths() {
    let referred = pb::Mount { id: 7, ..nfs() };
    let bind = Bind { path: "/x".into(), base: pb::Base::Mount.into(), ..Bind::default() };
    let cases = [
        (container(referred), "containers[0].mount.id"),
        (container(pb::Mount::default()), "containers[0].mount."),
        (container(overlay(Vec::new())), "containers[0].mount.overlay.lower"),
        (
            container(overlay(vec![rbd("")])),
            "containers[0].mount.overlay.lower[0].attach.attach.rbd.options.secret",
        ),
        (container(mount(Mounted::Bind(Box::new(bind)))), "containers[0].mount.bind.mount"),
        (pb::Container { command: " ".into(), ..container(nfs()) }, "containers[0].command"),
        (pb::Container { name: "a b".into(), ..container(nfs()) }, "containers[0].name"),
        (pb::Container { name: String::new(), ..container(nfs()) }, "containers[0].name"),
        (pb::Container { mount: None, ..container(nfs()) }, "containers[0].mount"),
        (pb::Container { state: State::Exited.into(), ..container(nfs()) }, "containers[0].state"),
        (pb::Container { namespaces: vec![99], ..container(nfs()) }, "containers[0].namespaces"),
    ];
    for (case, field) in cases {
        let found = wrong(&mut [case]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].trim_end_matches('.') == field.trim_end_matches('.'), "{found:?}");
    }
}

#[test]
fn names_are_unique_and_size_and_depth_are_bounded() {
    let mut twice = [container(nfs()), container(nfs())];
    assert_eq!(wrong(&mut twice), ["containers[1].name"]);
    let mut deep = nfs();
    for _ in 0..MAX_DEPTH {
        deep = overlay(vec![deep]);
    }
    assert_eq!(wrong(&mut [container(deep)]).len(), 1);
    let long = pb::Container { command: "x".repeat(MAX_BYTES), ..container(nfs()) };
    assert_eq!(wrong(&mut [long]), ["containers"]);
    let many =
        (0..=MAX_CONTAINERS).map(|n| pb::Container { name: format!("c{n}"), ..container(nfs()) });
    assert_eq!(wrong(&mut many.collect::<Vec<_>>()), ["containers"]);
}
