//! Rules of definitions that need no kernel. Rules of single drivers, such as the words of mount options, are the kernel's part.

use tinwright::node::v1::attachment::{self, Rbd};
use tinwright::node::v1::container::{Namespace, State};
use tinwright::node::v1::mount;
use tinwright::node::v1::{Attachment, Base, Container, Mount};

use super::Definition;
use crate::error::CallError;

/// The longest chain of objects in which each depends on the next.
pub(crate) const MAX_DEPTH: usize = 32;
/// The most lower file systems of an overlay.
const MAX_LOWER: usize = 64;
/// The longest name of a container, in bytes.
const MAX_NAME_BYTES: usize = 128;

type Checked = Result<(), CallError>;

/// Checks an object that is to be created, with all nested objects.
pub(crate) fn check(definition: &Definition) -> Checked {
    if definition.id() != 0 {
        let object = definition.object_type().name();
        return Err(CallError::invalid(format!("a new {object} cannot have an id")));
    }
    match definition {
        Definition::Attachment(attachment) => check_attachment(attachment, 1),
        Definition::Mount(mount) => check_mount(mount, 1),
        Definition::Container(container) => check_container(container),
    }
}

fn check_attachment(attachment: &Attachment, depth: usize) -> Checked {
    if attachment.id != 0 {
        return Ok(());
    }
    check_depth(depth)?;
    match &attachment.definition {
        None => Err(CallError::no_driver("the attachment has no definition")),
        Some(attachment::Definition::Iscsi(_) | attachment::Definition::Local(_)) => Ok(()),
        Some(attachment::Definition::Loopback(loopback)) => {
            check_base(loopback.base(), loopback.mount.as_deref(), &loopback.path, depth)
        }
        Some(attachment::Definition::Rbd(rbd)) => check_rbd(rbd),
    }
}

fn check_mount(mount: &Mount, depth: usize) -> Checked {
    if mount.id != 0 {
        return Ok(());
    }
    check_depth(depth)?;
    match &mount.definition {
        None => Err(CallError::no_driver("the mount has no definition")),
        Some(mount::Definition::Attach(attach)) => match &attach.attach {
            None => Err(CallError::invalid("the mount has no attachment")),
            Some(attachment) => check_attachment(attachment, depth + 1),
        },
        Some(mount::Definition::Bind(bind)) => {
            check_base(bind.base(), bind.mount.as_deref(), &bind.path, depth)
        }
        Some(mount::Definition::Nfs(_)) => Ok(()),
        Some(mount::Definition::Overlay(overlay)) => {
            if overlay.lower.is_empty() {
                return Err(CallError::invalid("the overlay has no lower mount"));
            }
            if overlay.lower.len() > MAX_LOWER {
                return Err(CallError::invalid(format!(
                    "the overlay has more than {MAX_LOWER} lower mounts"
                )));
            }
            overlay.lower.iter().try_for_each(|lower| check_mount(lower, depth + 1))
        }
    }
}

fn check_container(container: &Container) -> Checked {
    check_name(&container.name)?;
    let unknown =
        |value: &i32| matches!(Namespace::try_from(*value), Err(_) | Ok(Namespace::Unspecified));
    if container.namespaces.iter().any(unknown) {
        return Err(CallError::invalid("a namespace is unknown"));
    }
    match State::try_from(container.state) {
        Ok(State::Unspecified | State::Created | State::Running) => {}
        Ok(State::Stopping | State::Exited | State::Dead | State::Paused) | Err(_) => {
            return Err(CallError::invalid("a container begins as created or running"));
        }
    }
    match &container.mount {
        None => Err(CallError::invalid("the container has no mount")),
        Some(mount) => check_mount(mount, 2),
    }
}

fn check_name(name: &str) -> Checked {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.len() > MAX_NAME_BYTES {
        return Err(CallError::invalid(format!(
            "the name is longer than {MAX_NAME_BYTES} characters"
        )));
    }
    if !name.bytes().all(allowed) {
        return Err(CallError::invalid(
            "the name has other characters than letters, digits, . _ -",
        ));
    }
    Ok(())
}

/// Checks the base of a path, and that the path does not leave it.
fn check_base(base: Base, mount: Option<&Mount>, path: &str, depth: usize) -> Checked {
    if path.split('/').any(|component| component == "..") {
        return Err(CallError::invalid("the path has a component .."));
    }
    match (base, mount) {
        (Base::Root, _) => Ok(()),
        (Base::Mount, Some(mount)) => check_mount(mount, depth + 1),
        (Base::Mount, None) => Err(CallError::invalid("the base is a mount, but there is none")),
        (Base::Unspecified, _) => Err(CallError::invalid("the base is unknown")),
    }
}

fn check_rbd(rbd: &Rbd) -> Checked {
    let Some(options) = &rbd.options else {
        return Err(CallError::invalid("options are required"));
    };
    let required = [
        ("monitors", rbd.monitors.is_empty()),
        ("pool", rbd.pool.is_empty()),
        ("image", rbd.image.is_empty()),
        ("options.name", options.name.is_empty()),
        ("options.secret", options.secret.is_empty()),
    ];
    match required.iter().find(|(_, empty)| *empty) {
        Some((field, _)) => Err(CallError::invalid(format!("{field} is required"))),
        None => Ok(()),
    }
}

fn check_depth(depth: usize) -> Checked {
    if depth > MAX_DEPTH {
        return Err(CallError::invalid(format!("more than {MAX_DEPTH} nested objects")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tinwright::node::v1::attachment::RbdOptions;
    use tinwright::node::v1::image_error::Reason;

    use super::*;
    use crate::tests::requests::{bind, bind_over, container, loopback, overlay};

    fn reason(definition: Definition) -> Option<Reason> {
        check(&definition).err().map(|error| error.reason)
    }

    #[test]
    fn a_path_with_two_dots_is_invalid_for_both_bases_and_both_kinds() {
        for path in ["../../etc", "a/../b", ".."] {
            let mut attachment = loopback(bind("/srv"), path);
            assert_eq!(reason(Definition::Attachment(attachment.clone())), Some(Reason::Invalid));
            if let Some(attachment::Definition::Loopback(loopback)) = &mut attachment.definition {
                loopback.set_base(Base::Root);
            }
            assert_eq!(reason(Definition::Attachment(attachment)), Some(Reason::Invalid));
            assert_eq!(reason(Definition::Mount(bind(path))), Some(Reason::Invalid));
            let nested = bind_over(bind("/srv"), path);
            assert_eq!(reason(Definition::Mount(nested)), Some(Reason::Invalid));
        }
        assert_eq!(reason(Definition::Mount(bind("/a/..b/c.."))), None);
    }

    #[test]
    fn an_rbd_attachment_needs_options_with_name_and_secret() {
        let options = RbdOptions { name: "u".into(), secret: "k".into(), ..RbdOptions::default() };
        let whole = Rbd {
            monitors: vec!["192.0.2.1".into()],
            pool: "p".into(),
            image: "i".into(),
            options: Some(options),
            ..Rbd::default()
        };
        let attach = |rbd: Rbd| {
            let definition = Some(attachment::Definition::Rbd(rbd));
            Definition::Attachment(Attachment { definition, ..Attachment::default() })
        };
        assert_eq!(reason(attach(whole.clone())), None);
        assert_eq!(reason(attach(Rbd { options: None, ..whole.clone() })), Some(Reason::Invalid));
        assert_eq!(
            reason(attach(Rbd { monitors: vec![], ..whole.clone() })),
            Some(Reason::Invalid)
        );
        let mut masked = whole;
        masked.options.as_mut().unwrap().secret.clear();
        assert_eq!(reason(attach(masked)), Some(Reason::Invalid));
    }

    #[test]
    fn depth_and_width_are_limited() {
        let chain =
            |mounts: usize| (1..mounts).fold(bind("/srv"), |below, _| bind_over(below, "/"));
        assert_eq!(reason(Definition::Mount(chain(32))), None);
        assert_eq!(reason(Definition::Mount(chain(33))), Some(Reason::Invalid));
        assert_eq!(reason(Definition::Container(container("", chain(31)))), None);
        assert_eq!(reason(Definition::Container(container("", chain(32)))), Some(Reason::Invalid));
        assert_eq!(reason(Definition::Mount(overlay(vec![bind("/"); 64]))), None);
        assert_eq!(reason(Definition::Mount(overlay(vec![bind("/"); 65]))), Some(Reason::Invalid));
        assert_eq!(reason(Definition::Mount(overlay(vec![]))), Some(Reason::Invalid));
    }

    #[test]
    fn a_definition_that_is_missing_is_refused() {
        assert_eq!(reason(Definition::Mount(Mount::default())), Some(Reason::NoDriver));
        assert_eq!(reason(Definition::Attachment(Attachment::default())), Some(Reason::NoDriver));
        let container = Container { command: "/init".into(), ..Container::default() };
        assert_eq!(reason(Definition::Container(container)), Some(Reason::Invalid));
    }

    #[test]
    fn a_container_with_an_id_or_a_later_state_or_a_bad_name_is_invalid() {
        let with = |change: fn(&mut Container)| {
            let mut container = container("n2.x_y-z", bind("/srv"));
            change(&mut container);
            reason(Definition::Container(container))
        };
        assert_eq!(with(|_| ()), None);
        assert_eq!(with(|container| container.id = 4), Some(Reason::Invalid));
        for state in [State::Stopping, State::Exited, State::Dead, State::Paused] {
            let mut container = container("", bind("/srv"));
            container.set_state(state);
            assert_eq!(reason(Definition::Container(container)), Some(Reason::Invalid));
        }
        assert_eq!(with(|container| container.name = "a b".into()), Some(Reason::Invalid));
        assert_eq!(with(|container| container.name = "n".repeat(128)), None);
        assert_eq!(with(|container| container.name = "n".repeat(129)), Some(Reason::Invalid));
        assert_eq!(with(|container| container.namespaces = vec![99]), Some(Reason::Invalid));
    }
}
