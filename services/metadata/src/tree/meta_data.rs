//! `meta-data/`: everything but interfaces, keys and tags.
//!
//! Paths of a cloud account (`iam/`, `services/`, `security-groups`, …) are absent on purpose: SDKs read a 404 as "no
//! credentials here".

use serde_json::json;

use super::row::{Row, Stars, text};
use super::{Body, identity};
use crate::machine::Machine;

pub(super) const ROWS: &[Row] = &[
    Row::leaf("meta-data/ami-id", |m| text(m.image_id())),
    Row::leaf("meta-data/ami-launch-index", |_| text("0")),
    Row::leaf("meta-data/ami-manifest-path", |_| text("(unknown)")),
    Row::each("meta-data/block-device-mapping/*", device_names, device),
    Row::leaf("meta-data/events/maintenance/history", |_| text("[]")),
    Row::leaf("meta-data/events/maintenance/scheduled", |_| text("[]")),
    Row::leaf("meta-data/facility", |m| text(&m.facility)),
    Row::leaf("meta-data/hostname", |m| text(m.hostname())),
    Row::leaf("meta-data/instance-action", |_| text("none")),
    Row::leaf("meta-data/instance-id", |m| text(m.instance_id())),
    Row::leaf("meta-data/instance-life-cycle", |m| {
        text(if m.is_spot() { "spot" } else { "on-demand" })
    }),
    Row::leaf("meta-data/instance-type", |m| text(m.instance_type())),
    Row::leaf("meta-data/ipv6", |m| text(m.ipv6()?)),
    Row::leaf("meta-data/iqn", |m| text(m.extra("/iqn"))),
    Row::leaf("meta-data/local-hostname", |m| text(m.hostname())),
    Row::leaf("meta-data/local-ipv4", |m| text(m.local_ipv4()?)),
    Row::leaf("meta-data/mac", |m| text(m.primary_nic()?.mac)),
    Row::leaf("meta-data/operating-system/distro", |m| text(&m.instance.as_ref()?.os.distro)),
    Row::leaf("meta-data/operating-system/image_tag", |m| text(&m.instance.as_ref()?.os.image_tag)),
    Row::leaf("meta-data/operating-system/license_activation/state", |m| {
        text(m.extra("/license_activation/state"))
    }),
    Row::leaf("meta-data/operating-system/slug", |m| text(&m.instance.as_ref()?.os.slug)),
    Row::leaf("meta-data/operating-system/version", |m| text(&m.instance.as_ref()?.os.version)),
    Row::leaf("meta-data/placement/availability-zone", |m| text(m.availability_zone())),
    Row::leaf("meta-data/placement/availability-zone-id", |m| {
        if m.facility.is_empty() { None } else { text(format!("{}-az1", m.facility)) }
    }),
    Row::leaf("meta-data/placement/host-id", |m| text(m.id)),
    Row::leaf("meta-data/placement/region", |m| text(&m.facility)),
    Row::leaf("meta-data/plan", |m| text(&m.plan)),
    Row::leaf("meta-data/public-hostname", |m| text(m.public_hostname())),
    Row::leaf("meta-data/public-ipv4", |m| text(m.public_ipv4()?)),
    Row::leaf("meta-data/public-ipv6", |m| text(m.public_ipv6()?)),
    Row::leaf("meta-data/reservation-id", |m| {
        text(identity::derived("r", &[&m.instance.as_ref()?.id]))
    }),
    Row::leaf("meta-data/spot/instance-action", |m| match m.extra("/spot/termination_time") {
        "" => None,
        time => text(json!({ "action": "terminate", "time": time })),
    }),
    Row::leaf("meta-data/spot/termination-time", |m| text(m.extra("/spot/termination_time"))),
];

/// Returns the names of disks: `ami` and `root` for the system disk, `ephemeral0` and up for the others.
fn device_names(machine: &Machine, _: Stars) -> Vec<String> {
    let others = machine.devices().len().saturating_sub(1);
    let ephemeral = (0..others).map(|n| format!("ephemeral{n}"));
    ["ami".to_owned(), "root".to_owned()].into_iter().chain(ephemeral).collect()
}

fn device(machine: &Machine, stars: Stars) -> Option<Body> {
    let devices = machine.devices();
    let (system, others) = devices.split_first()?;
    match stars {
        ["ami" | "root"] => text(system),
        [name] => {
            let named = others.iter().enumerate().find(|(n, _)| format!("ephemeral{n}") == *name);
            text(named?.1)
        }
        _ => None,
    }
}
