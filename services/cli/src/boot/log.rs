//! Syslog of a machine.

use tinwright::netboot::v1 as pb;
use tinwright::netboot::v1::explain_boot_request::By;
use tinwright::netboot::v1::read_boot_log_request::By as Of;
use tokio_stream::StreamExt as _;

use super::{add_hint, by};
use crate::connect::{Io, stream};
use crate::follow::while_unavailable;

/// Prints the latest `lines` (0: all) of `machine`, or of addresses without a machine. With `follow`, continues with
/// new lines, and after a disconnect.
pub(super) async fn print(
    machine: Option<&str>,
    lines: u32,
    follow: bool,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let of = match machine {
        None => Of::Unknown(true),
        Some(name) => match by(io.channel, name).await? {
            By::HardwareId(id) => Of::HardwareId(id),
            By::Mac(mac) => Of::Mac(mac),
            By::Address(address) => Of::Address(address),
            By::Hostname(name) => Of::Hostname(name),
        },
    };
    let mut request = pb::ReadBootLogRequest { by: Some(of), lines, follow, after: 0 };
    let mut is_empty = true;
    while_unavailable(follow, async |failures| {
        let mut lines = stream(io.channel, request.clone()).await.map_err(add_hint)?;
        while let Some(line) = lines.next().await {
            let line = line?;
            io.print(&text(&line))?;
            is_empty = false;
            // A repeated request continues after the last line.
            (request.after, request.lines, *failures) = (line.sequence, 0, 0);
        }
        Ok(())
    })
    .await?;
    if is_empty {
        eprintln!("tinwright: no lines of {} are stored", machine.unwrap_or("unknown machines"));
    }
    Ok(())
}

/// Renders `line`.
fn text(line: &pb::ReadBootLogResponse) -> String {
    let time = line.receive_time.map(|time| time.to_string()).unwrap_or_default();
    let app = match (line.app.as_str(), line.process.as_str()) {
        ("", _) => String::new(),
        (app, "") => format!(" {app}:"),
        (app, process) => format!(" {app}[{process}]:"),
    };
    format!("{time} {} {}.{}{app} {}", line.source, line.facility, line.severity, line.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_time_source_severity_program_and_text() {
        let line = pb::ReadBootLogResponse {
            receive_time: Some(prost_types::Timestamp { seconds: 0, nanos: 0 }),
            source: "192.0.2.10".into(),
            facility: "kern".into(),
            severity: "err".into(),
            app: "dhcp".into(),
            process: "7".into(),
            message: "no lease".into(),
            ..pb::ReadBootLogResponse::default()
        };
        assert_eq!(text(&line), "1970-01-01T00:00:00Z 192.0.2.10 kern.err dhcp[7]: no lease");
    }
}
