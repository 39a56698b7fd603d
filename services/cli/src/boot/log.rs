//! Syslog of a machine, a line each.

use std::io::Write;

use tinwright::netboot::v1 as pb;
use tinwright::netboot::v1::explain_boot_request::By;
use tinwright::netboot::v1::read_boot_log_request::By as Of;
use tokio_stream::StreamExt as _;
use tonic::Status;
use tonic::transport::Channel;

use super::{add_hint, by, client};
use crate::follow::{PATIENCE, PAUSE, is_passing};
use crate::output::say;

/// Prints the latest `lines` (0: all) of `machine`, or of addresses of no machine. With `follow`, goes on, and waits for a
/// server that is away.
pub(super) async fn print(
    channel: &Channel,
    machine: Option<&str>,
    lines: u32,
    follow: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let of = match machine.map(by).transpose()? {
        None => Of::Unknown(true),
        Some(By::HardwareId(id)) => Of::HardwareId(id),
        Some(By::Mac(mac)) => Of::Mac(mac),
        Some(By::Address(address)) => Of::Address(address),
        Some(By::Hostname(name)) => Of::Hostname(name),
    };
    let mut wanted = pb::ReadBootLogRequest { by: Some(of), lines, follow, after: 0 };
    let mut failures = 0;
    loop {
        match stream(channel, &mut wanted, &mut failures, out).await {
            Err(error) if follow && failures < PATIENCE && away(&error) => failures += 1,
            other => return other,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Prints the stream, and records the last line in `wanted`.
async fn stream(
    channel: &Channel,
    wanted: &mut pb::ReadBootLogRequest,
    failures: &mut u32,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut lines =
        client(channel).read_boot_log(wanted.clone()).await.map_err(add_hint)?.into_inner();
    while let Some(line) = lines.next().await {
        let line = line?;
        say(out, &text(&line))?;
        (wanted.after, wanted.lines, *failures) = (line.sequence, 0, 0);
    }
    Ok(())
}

fn away(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Status>().is_some_and(is_passing)
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
