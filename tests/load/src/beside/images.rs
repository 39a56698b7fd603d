//! Compares downloads of one image by a hundred machines with nginx, which serves the same file.

use std::net::SocketAddrV4;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use rack::SERVER;

use super::{Figure, Table};
use crate::fleet;
use crate::http_load::Target;
use crate::image_readers::{READERS, Received, measure};
use crate::peer::Peer;
use crate::process::{KiB, Measured};
use crate::site::Site;
use crate::steal::{Sample, undisturbed};

/// The address of our boot HTTP, and of nginx.
const BOOT: SocketAddrV4 = SocketAddrV4::new(SERVER, 7080);
/// Size of the image in bytes. Its content cannot be compressed.
const IMAGE_BYTES: usize = 256 << 20;
/// The most memory that the readers may add to the server.
const MAX_ADDED: KiB = KiB(64 << 10);
/// nginx with and without sendfile, and the lowest accepted ratio.
const PEERS: [(&str, bool, Option<f64>); 2] =
    [("sendfile off", false, Some(0.9)), ("sendfile on", true, None)];

/// Compares our server with nginx, unpacked at `peers`.
pub(super) fn images(ours: &Site, peers: &Path, table: &mut Table<'_>) -> anyhow::Result<()> {
    let target = upload(ours)?;
    let server = ours.measured()?;
    let file = downloaded(server, &target)?;
    table.heading("One image, 100 readers", "MB/s", "nginx");
    for (name, sendfile, goal) in PEERS {
        let place = target.path.trim_start_matches('/');
        let nginx = Peer::nginx(peers, sendfile, |root| {
            let link = root.join(place);
            std::fs::create_dir_all(link.parent().unwrap_or(root))?;
            Ok(symlink(&file, link)?)
        })?;
        nginx.ready(|nginx| rate(nginx, &target).ok())?;
        let theirs = || rate(nginx.measured(), &target);
        table.row(&format!("nginx with {name}"), goal, || rate(server, &target), theirs)?;
    }
    let idle = ours.settled_memory()?;
    server.process.reset_peak_memory()?;
    measure(server, &target)?;
    let added = KiB(server.process.peak_memory()?.0.saturating_sub(idle.0));
    table.report.memory(&format!("memory of {READERS} readers"), added, Some(MAX_ADDED));
    Ok(())
}

/// Uploads a public image. Returns its stored file as the boot server serves it.
fn upload(site: &Site) -> anyhow::Result<Target> {
    let file = site.data().join("image.raw");
    let mut content = noise(IMAGE_BYTES)?;
    // A boot sector.
    content.get_mut(510..512).context("no boot sector")?.copy_from_slice(&[0x55, 0xaa]);
    std::fs::write(&file, content)?;
    client(site, &["image", "upload", &file.to_string_lossy(), "--name", "image", "--public"])?;
    let digest = client(site, &["image", "get", "image", "-o", "jsonpath=$..stored_sha256"])?;
    let path = format!("/images/{}.raw.zst", digest.trim());
    Ok(Target { client: fleet::address(0), server: BOOT, path })
}

/// Runs the program as a client of the server. Returns its output.
fn client(site: &Site, arguments: &[&str]) -> anyhow::Result<String> {
    let output = site.command().args(arguments).output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{arguments:?}: {error}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns `count` bytes that cannot be compressed.
fn noise(count: usize) -> anyhow::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut noise = Vec::with_capacity(count);
    std::fs::File::open("/dev/urandom")?.take(u64::try_from(count)?).read_to_end(&mut noise)?;
    Ok(noise)
}

/// Downloads the file once, and checks it. Returns its path.
fn downloaded(server: Measured<'_>, target: &Target) -> anyhow::Result<PathBuf> {
    server.network.enter()?;
    let file = server.network.lab.path("stored");
    let url = format!("http://{}{}", target.server, target.path);
    setup::run(Command::new("curl").args(["--silent", "--fail", "--output"]).arg(&file).arg(url))?;
    let output = Command::new("sha256sum").arg(&file).output()?;
    let digest = target.path.trim_start_matches("/images/").trim_end_matches(".raw.zst");
    anyhow::ensure!(output.stdout.starts_with(digest.as_bytes()), "another content");
    Ok(file)
}

fn rate(server: Measured<'_>, target: &Target) -> anyhow::Result<Figure> {
    let Sample { value, disturbed } = undisturbed(|| measure(server, target))?;
    let Received { bytes, elapsed, cpu } = value;
    Ok(Figure { disturbed, ..Figure::new(bytes as f64 / 1e6, elapsed, cpu) })
}
