//! Boot HTTP and metadata beside nginx, which serves the same bytes from files.

use std::net::SocketAddrV4;
use std::path::Path;

use rack::SERVER;

use super::{FEW, Figure, MANY, Table};
use crate::blast::{Answered, Connections, Question, blast};
use crate::http::{self, METADATA};
use crate::peer::Peer;
use crate::process::Measured;
use crate::quiet::{Quiet, quiet};
use crate::{api, fleet};

/// Where our boot HTTP listens.
const BOOT: SocketAddrV4 = SocketAddrV4::new(SERVER, 7080);
/// What is asked of metadata.
const ID: &str = "/latest/meta-data/instance-id";
/// How connections are used.
const HOW: [(Connections, &str); 2] = [(Connections::Kept, "kept"), (Connections::Fresh, "fresh")];

/// Ours beside theirs, which is unpacked at `peers`, and of many machines beside few.
pub(super) fn http(
    few: Measured<'_>,
    many: Measured<'_>,
    peers: &Path,
    table: &mut Table<'_>,
) -> anyhow::Result<()> {
    let nginx = Peer::nginx(peers, &same(few)?)?;
    nginx.ready(|nginx| asked(nginx, &ids(1), Connections::Fresh).ok())?;
    table.heading("HTTP, 32 connections", "/s", "nginx");
    for (what, questions) in [("scripts", scripts(FEW)), ("metadata", ids(FEW))] {
        for (connections, how) in HOW {
            let theirs = || asked(nginx.measured(), &questions, connections);
            let ours = || asked(few, &questions, connections);
            table.row(&format!("{what}, {how} connections"), Some(0.8), ours, theirs)?;
        }
    }
    table.heading("HTTP, 10,000 machines", "/s", "ours, of 10");
    for (what, small, large) in
        [("scripts", scripts(FEW), scripts(MANY)), ("metadata", ids(FEW), ids(MANY))]
    {
        for (connections, how) in HOW {
            let theirs = || asked(few, &small, connections);
            let ours = || asked(many, &large, connections);
            table.row(&format!("{what}, {how} connections"), Some(0.8), ours, theirs)?;
        }
    }
    Ok(())
}

fn asked(
    server: Measured<'_>,
    questions: &[Question],
    connections: Connections,
) -> anyhow::Result<Figure> {
    let Quiet { measured, disturbed } = quiet(|| blast(server, questions, connections))?;
    let Answered { requests, took, processor } = measured;
    Ok(Figure { disturbed, ..Figure::of(requests as f64, took, processor) })
}

/// Each of the first `count` machines' question for its script.
fn scripts(count: usize) -> Vec<Question> {
    let path = |n| format!("/{}/auto.ipxe", fleet::mac(n).dashed());
    (0..count).map(|n| Question { own: fleet::address(n), server: BOOT, path: path(n) }).collect()
}

/// Each one's question who it is.
fn ids(count: usize) -> Vec<Question> {
    let question = |n| Question { own: fleet::address(n), server: METADATA, path: ID.to_owned() };
    (0..count).map(question).collect()
}

/// What ours answers, by path: the scripts of all of the few, and one id, as long as every other.
fn same(ours: Measured<'_>) -> anyhow::Result<Vec<(String, String)>> {
    ours.network.enter()?;
    api::runtime()?.block_on(async {
        let mut files = Vec::new();
        for Question { own, server, path } in scripts(FEW).into_iter().chain(ids(1)) {
            let answer = http::get(own, server, &path).await?;
            anyhow::ensure!(answer.status == 200, "{path} answered {}", answer.status);
            files.push((path, answer.body));
        }
        Ok(files)
    })
}
