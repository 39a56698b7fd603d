//! Containers.

use tinwright::node::v1::Container;
use tinwright::node::v1::container::State;

use super::limits::{Depth, check_no_id};
use super::mount::{mount, mount_fields};
use super::names::{container_state, namespace, namespace_text, state_text};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::schema::tables;
use crate::secrets::Secrets;

/// Converts the body of a creation.
pub(crate) fn new_container(mut fields: Fields) -> Result<Container, ApiError> {
    check_no_id(&mut fields)?;
    let state = container_state(&fields.text("state").unwrap_or_default());
    match state {
        State::Unspecified | State::Created | State::Running => {}
        State::Stopping | State::Exited | State::Dead | State::Paused => {
            return Err(ApiError::invalid("state is neither created nor running"));
        }
    }
    let root = fields.object("mount").map(|root| mount(root, Depth::OUTERMOST.deeper()?));
    let namespaces = fields.texts("namespaces");
    Ok(Container {
        name: fields.text("name").unwrap_or_default(),
        mount: root.transpose()?,
        command: fields.text("command").unwrap_or_default(),
        systemd: fields.boolean("systemd").unwrap_or_default(),
        state: state.into(),
        namespaces: namespaces.iter().map(|text| namespace(text).into()).collect(),
        ..Container::default()
    })
}

/// Converts a container of a result.
pub(crate) fn container_fields(container: &Container, secrets: Secrets) -> Fields {
    let namespaces: Vec<_> = container.namespaces().filter_map(namespace_text).collect();
    Fields::new(&tables::CONTAINER)
        .with("command", &container.command)
        .with("id", container.id)
        .with("logfile", &container.logfile)
        .with("mount", container.mount.as_ref().map(|root| mount_fields(root, secrets)))
        .with("name", &container.name)
        .with("namespaces", namespaces)
        .with("refs", container.refs)
        .with("state", state_text(container.state()))
        .with("systemd", container.systemd)
}
