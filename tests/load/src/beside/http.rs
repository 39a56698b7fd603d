//! Compares boot HTTP and metadata with nginx, which serves the same bytes from files.

use std::fs;
use std::net::SocketAddrV4;
use std::path::Path;

use rack::SERVER;

use super::{FEW_MACHINES, Figure, MANY_MACHINES, Table};
use crate::http::{self, METADATA};
use crate::http_load::{Connections, HttpResult, Target, measure};
use crate::peer::Peer;
use crate::process::Measured;
use crate::steal::{Sample, undisturbed};
use crate::{api, fleet};

/// The address of our boot HTTP.
const BOOT: SocketAddrV4 = SocketAddrV4::new(SERVER, 7080);
/// The path requested from the metadata service.
const ID_PATH: &str = "/latest/meta-data/instance-id";
/// The uses of connections, and their names in the table.
const CONNECTIONS: [(Connections, &str); 2] =
    [(Connections::KeepAlive, "kept"), (Connections::PerRequest, "fresh")];

/// Compares our server with nginx, unpacked at `peers`, and our server of many machines with that of few.
pub(super) fn http(
    few: Measured<'_>,
    many: Measured<'_>,
    peers: &Path,
    table: &mut Table<'_>,
) -> anyhow::Result<()> {
    let files = files(few)?;
    let nginx = Peer::nginx(peers, true, |root| {
        files.iter().try_for_each(|(path, text)| {
            let path = root.join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap_or(root))?;
            Ok(fs::write(path, text)?)
        })
    })?;
    nginx.ready(|nginx| rate(nginx, &ids(1), Connections::PerRequest).ok())?;
    table.heading("HTTP, 32 connections", "/s", "nginx");
    for (name, targets) in [("scripts", scripts(FEW_MACHINES)), ("metadata", ids(FEW_MACHINES))] {
        for (connections, usage) in CONNECTIONS {
            let theirs = || rate(nginx.measured(), &targets, connections);
            let ours = || rate(few, &targets, connections);
            table.row(&format!("{name}, {usage} connections"), Some(0.8), ours, theirs)?;
        }
    }
    table.heading("HTTP, 10,000 machines", "/s", "ours, 10 machines");
    for (name, small, large) in [
        ("scripts", scripts(FEW_MACHINES), scripts(MANY_MACHINES)),
        ("metadata", ids(FEW_MACHINES), ids(MANY_MACHINES)),
    ] {
        for (connections, usage) in CONNECTIONS {
            let theirs = || rate(few, &small, connections);
            let ours = || rate(many, &large, connections);
            table.row(&format!("{name}, {usage} connections"), Some(0.8), ours, theirs)?;
        }
    }
    Ok(())
}

fn rate(
    server: Measured<'_>,
    targets: &[Target],
    connections: Connections,
) -> anyhow::Result<Figure> {
    let Sample { value, disturbed } = undisturbed(|| measure(server, targets, connections))?;
    let HttpResult { requests, elapsed, cpu } = value;
    Ok(Figure { disturbed, ..Figure::new(requests as f64, elapsed, cpu) })
}

/// Returns the script URLs of the first `count` machines.
pub(crate) fn scripts(count: usize) -> Vec<Target> {
    let path = |n| format!("/{}/auto.ipxe", fleet::mac(n).dashed());
    (0..count).map(|n| Target { client: fleet::address(n), server: BOOT, path: path(n) }).collect()
}

/// Returns the instance-id URLs of the first `count` machines.
pub(crate) fn ids(count: usize) -> Vec<Target> {
    let target =
        |n| Target { client: fleet::address(n), server: METADATA, path: ID_PATH.to_owned() };
    (0..count).map(target).collect()
}

/// Returns the responses of our server as pairs of path and body: the scripts of the first machines, and one id, which has
/// the length of all ids.
fn files(ours: Measured<'_>) -> anyhow::Result<Vec<(String, String)>> {
    ours.network.enter()?;
    api::runtime()?.block_on(async {
        let mut files = Vec::new();
        for Target { client, server, path } in scripts(FEW_MACHINES).into_iter().chain(ids(1)) {
            let response = http::get(client, server, &path).await?;
            anyhow::ensure!(response.status == 200, "status {} for {path}", response.status);
            files.push((path, response.body));
        }
        Ok(files)
    })
}
