//! Downloads from a publisher on loopback, whole and with failures.

mod packed;
mod server;

use std::path::{Path, PathBuf};
use std::time::Duration;

use disk_images::download::{Downloader, Plaintext};
use gptman::{GPT, GPTPartitionEntry};
use server::{Fault, Server};
use sha2::{Digest as _, Sha256, Sha512};

use super::*;
use crate::failure;

const IMAGE: &str = "/bookworm/latest/debian-12-generic-amd64.qcow2";
const CHECKSUMS: &str = "/bookworm/latest/SHA512SUMS";
/// Delays in place of the seconds between attempts.
const DELAYS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(2));

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a disk with one partition: an ext4 with the directories of cloud-init.
fn disk() -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    let image = cloud_init::tests::image(place.path(), true);
    let file = std::fs::File::options().read(true).write(true).open(&image).unwrap();
    let (first, end) = (cloud_init::tests::OFFSET / 512, file.metadata().unwrap().len() / 512);
    file.set_len((end + 2048) * 512).unwrap();
    add_table(&file, first, end - 1);
    std::fs::read(image).unwrap()
}

/// Writes a partition table with partition 3.
fn add_table(mut file: &std::fs::File, first: u64, last: u64) {
    let mut table = GPT::new_from(&mut file, 512, [1; 16]).unwrap();
    table[3] = GPTPartitionEntry {
        partition_type_guid: [2; 16],
        unique_partition_guid: [3; 16],
        starting_lba: first,
        ending_lba: last,
        attribute_bits: 0,
        partition_name: "root".into(),
    };
    table.write_into(&mut file).unwrap();
}

/// A publisher, and a directory in which images are stored.
struct Site {
    server: Server,
    place: tempfile::TempDir,
}

impl Site {
    /// A site whose publisher has Debian 12 with the content `disk`.
    async fn with(disk: &[u8]) -> Self {
        let site = Self { server: Server::start(false).await, place: tempfile::tempdir().unwrap() };
        site.publish(disk);
        site
    }

    fn publish(&self, disk: &[u8]) {
        let image = packed::packed(disk);
        let sum = hex(&Sha512::digest(&image));
        let text = format!(
            "{}  debian-12-generic-amd64.json\n{sum}  debian-12-generic-amd64.qcow2\n",
            "0".repeat(128)
        );
        self.server.publish(CHECKSUMS, text);
        self.server.publish(IMAGE, image);
    }

    fn files(&self) -> PathBuf {
        self.place.path().join("images")
    }

    fn stored(&self) -> PathBuf {
        self.files().join("debian-12.raw.zst")
    }

    /// Returns the names in the directory of images.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.files()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    /// Runs `image fetch` with these words, the directory, and the publisher.
    async fn fetch(&self, words: &str) -> Result<String, String> {
        self.run(&format!("{words} --allow-http"), None).await
    }

    async fn run(&self, words: &str, ca: Option<&Path>) -> Result<String, String> {
        let files = self.files().display().to_string();
        let line = format!("image fetch {words} --base-url {} --files", self.server.url);
        let words = line.split_whitespace().map(str::to_owned).chain([files]);
        let ImageCommand::Fetch(fetch) = parse(words) else { panic!("{line}") };
        let FetchCommand { images, files, download, .. } = *fetch;
        let plaintext = if download.allow_http { Plaintext::Allowed } else { Plaintext::Refused };
        let downloader = Downloader::new(plaintext, ca).unwrap().with_delays(DELAYS.0, DELAYS.1);
        let mut out = Vec::new();
        let fetched =
            fetch::run_with(&downloader, &images, &files.unwrap(), &download, &mut out).await;
        let printed = String::from_utf8(out).unwrap();
        match fetched {
            Ok(()) => Ok(printed),
            Err(error) => Err(printed + &failure::lines(&error).join("\n")),
        }
    }
}

fn parse(words: impl Iterator<Item = String>) -> ImageCommand {
    #[derive(clap::Parser)]
    struct Line {
        #[command(subcommand)]
        command: ImageCommand,
    }
    let line = <Line as clap::Parser>::try_parse_from(words);
    line.unwrap_or_else(|error| panic!("{error}")).command
}

#[tokio::test]
async fn an_image_is_fetched_made_ready_for_cloud_init_and_then_unchanged() {
    let disk = disk();
    let site = Site::with(&disk).await;
    let printed = site.fetch("debian-12").await.unwrap();
    let checksum = hex(&Sha256::digest(std::fs::read(site.stored()).unwrap()));
    for part in [
        "debian-12: fetched ",
        &format!("sha256:{checksum}"),
        "\n  root file system: partition 3, ext4\n",
        "\n  cloud-init gets its metadata from http://169.254.169.254\n",
    ] {
        assert!(printed.contains(part), "{part} {printed}");
    }
    assert_eq!(site.names(), ["debian-12.raw.zst", "debian-12.raw.zst.sha256"]);
    let raw = site.place.path().join("raw");
    std::fs::write(&raw, zstd::decode_all(std::fs::File::open(site.stored()).unwrap()).unwrap())
        .unwrap();
    assert_eq!(std::fs::metadata(&raw).unwrap().len(), disk.len() as u64);
    assert!(cloud_init::tests::listed(&raw).contains(cloud_init::FILE));
    site.server.requests();
    let printed = site.fetch("debian-12").await.unwrap();
    assert!(printed.starts_with("debian-12: unchanged "), "{printed}");
    assert!(printed.contains(&checksum), "{printed}");
    assert_eq!(site.server.requests(), [CHECKSUMS]);
}

#[tokio::test]
async fn a_new_version_a_damaged_file_and_another_setting_are_fetched_anew() {
    let mut disk = disk();
    let site = Site::with(&disk).await;
    site.fetch("debian-12").await.unwrap();
    let end = disk.len() - 40_000;
    disk[end] = 1;
    site.publish(&disk);
    let again = async |words: &str| {
        let printed = site.fetch(words).await.unwrap();
        assert!(printed.starts_with("debian-12: fetched "), "{words}: {printed}");
        let printed = site.fetch(words).await.unwrap();
        assert!(printed.starts_with("debian-12: unchanged "), "{words}: {printed}");
    };
    again("debian-12").await;
    let stored = zstd::decode_all(std::fs::File::open(site.stored()).unwrap()).unwrap();
    assert_eq!(stored[end], 1);
    std::fs::write(site.stored(), "damaged").unwrap();
    again("debian-12").await;
    again("debian-12 --metadata-url http://198.51.100.1:8000").await;
    again("debian-12 --as-published").await;
    let stored = zstd::decode_all(std::fs::File::open(site.stored()).unwrap()).unwrap();
    assert!(stored == disk, "as published");
}

#[tokio::test]
async fn a_cut_download_goes_on_where_it_ended() {
    let site = Site::with(&disk()).await;
    let faults =
        [Fault::CutAfter(100_000), Fault::Status(503), Fault::CutAfter(0), Fault::CutAfter(50_000)];
    site.server.fail(IMAGE, &faults);
    site.fetch("debian-12").await.unwrap();
    let from = |position: usize| format!("{IMAGE} from {position}");
    let expected = [
        CHECKSUMS.to_owned(),
        IMAGE.to_owned(),
        from(100_000),
        from(100_000),
        from(100_000),
        from(150_000),
    ];
    assert_eq!(site.server.requests(), expected);
}

#[tokio::test]
async fn a_later_command_goes_on_and_a_server_without_ranges_begins_anew() {
    let site = Site::with(&disk()).await;
    let cut = [&[Fault::CutAfter(100_000)][..], &[Fault::CutAfter(0); 4]].concat();
    site.server.fail(IMAGE, &cut);
    let error = site.fetch("debian-12").await.unwrap_err();
    assert!(error.contains("the same command goes on there: "), "{error}");
    assert_eq!(site.names().len(), 1, "the part");
    site.server.requests();
    site.server.fail(IMAGE, &[Fault::WithoutRanges]);
    site.fetch("debian-12").await.unwrap();
    assert_eq!(site.server.requests(), [CHECKSUMS, &format!("{IMAGE} from 100000")]);
    assert_eq!(site.names(), ["debian-12.raw.zst", "debian-12.raw.zst.sha256"]);
}

#[tokio::test]
async fn a_wrong_checksum_changes_nothing_and_leaves_nothing() {
    let site = Site::with(&disk()).await;
    site.fetch("debian-12").await.unwrap();
    let before = std::fs::read(site.stored()).unwrap();
    let text = format!("{}  debian-12-generic-amd64.qcow2\n", "ab".repeat(64));
    site.server.publish(CHECKSUMS, text);
    let error = site.fetch("debian-12").await.unwrap_err();
    assert!(error.starts_with("debian-12: http://127.0.0.1:"), "{error}");
    for part in ["wrong checksum", "published is sha512:abab", "the download was removed"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(std::fs::read(site.stored()).unwrap() == before);
    assert_eq!(site.names(), ["debian-12.raw.zst", "debian-12.raw.zst.sha256"]);
}

#[tokio::test]
async fn an_image_or_a_checksum_that_is_not_published_is_named() {
    let site = Site::with(&disk()).await;
    let error = site.fetch("ubuntu-24.04").await.unwrap_err();
    assert!(
        error.contains("/releases/noble/release/SHA256SUMS: the server answers 404"),
        "{error}"
    );
    let ubuntu = "/releases/noble/release/SHA256SUMS";
    site.server.publish(ubuntu, format!("{} *other.img\n", "1".repeat(64)));
    let error = site.fetch("ubuntu-24.04").await.unwrap_err();
    let expected = "has no line for ubuntu-24.04-server-cloudimg-amd64.img";
    assert!(error.contains(expected), "{error}");
    let line = format!("{} *ubuntu-24.04-server-cloudimg-amd64.img\n", "1".repeat(64));
    site.server.publish(ubuntu, line);
    let error = site.fetch("ubuntu-24.04").await.unwrap_err();
    let expected = "/ubuntu-24.04-server-cloudimg-amd64.img: the server answers 404";
    assert!(error.contains(expected), "{error}");
    assert!(site.names().is_empty(), "{:?}", site.names());
}

#[tokio::test]
async fn one_failure_does_not_keep_others_from_being_fetched() {
    let site = Site::with(&disk()).await;
    let error = site.fetch("rocky-9 debian-12 ubuntu-22.04").await.unwrap_err();
    let lines: Vec<_> = error.lines().collect();
    let beginnings = [
        "debian-12: fetched ",
        "  root",
        "  cloud-init",
        "rocky-9: ",
        "ubuntu-22.04: ",
        "2 of 3 objects failed",
    ];
    assert_eq!(lines.len(), beginnings.len(), "{error}");
    for (line, beginning) in lines.iter().zip(beginnings) {
        assert!(line.starts_with(beginning), "{line}");
    }
}

#[tokio::test]
async fn rocky_linux_is_stored_without_the_setting_which_its_xfs_does_not_take() {
    let site = Site::with(&disk()).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(8 << 20).unwrap();
    add_table(file.as_file(), 2048, 8191);
    let mut disk = std::fs::read(file.path()).unwrap();
    disk[2048 * 512..2048 * 512 + 4].copy_from_slice(b"XFSB");
    let image = packed::packed(&disk);
    let name = "Rocky-9-GenericCloud-Base.latest.x86_64.qcow2";
    let sum = hex(&Sha256::digest(&image));
    let text = format!("# {name}: {} bytes\nSHA256 ({name}) = {sum}\n", image.len());
    site.server.publish("/9/images/x86_64/CHECKSUM", text);
    site.server.publish(&format!("/9/images/x86_64/{name}"), image);
    let printed = site.fetch("rocky-9").await.unwrap();
    assert!(printed.contains("root file system: partition 3, xfs"), "{printed}");
    assert!(printed.contains("not written into xfs: a template has to write"), "{printed}");
    let stored = std::fs::File::open(site.files().join("rocky-9.raw.zst")).unwrap();
    assert!(zstd::decode_all(stored).unwrap() == disk);
}

#[tokio::test]
async fn a_complete_download_is_kept_if_it_cannot_be_unpacked() {
    let site = Site::with(&disk()).await;
    let obstacle = site.files().join(".debian-12.raw.tmp");
    std::fs::create_dir_all(&obstacle).unwrap();
    let error = site.fetch("debian-12").await.unwrap_err();
    assert!(error.contains("writing ") && error.contains("Is a directory"), "{error}");
    std::fs::remove_dir(&obstacle).unwrap();
    site.server.requests();
    site.fetch("debian-12").await.unwrap();
    let length = packed::packed(&disk()).len();
    assert_eq!(site.server.requests(), [CHECKSUMS, &format!("{IMAGE} from {length}")]);
}

#[tokio::test]
async fn downloads_without_tls_and_from_strangers_are_refused() {
    let site = Site::with(&disk()).await;
    let error = site.run("debian-12", None).await.unwrap_err();
    assert!(error.contains("give --allow-http for a mirror without TLS"), "{error}");
    assert!(site.server.requests().is_empty());
    let place = tempfile::tempdir().unwrap();
    let site = Site { server: Server::start(true).await, place };
    site.publish(&disk());
    let error = site.run("debian-12", None).await.unwrap_err();
    assert!(error.contains("invalid peer certificate"), "{error}");
    assert!(site.server.requests().is_empty());
    let ca = site.place.path().join("ca.pem");
    std::fs::write(&ca, &site.server.certificate).unwrap();
    let printed = site.run("debian-12", Some(&ca)).await.unwrap();
    assert!(printed.starts_with("debian-12: fetched "), "{printed}");
}

#[tokio::test]
async fn a_server_that_does_not_listen_is_named_at_once() {
    let mut site = Site::with(&disk()).await;
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    site.server.url = format!("http://{}", unused.local_addr().unwrap());
    drop(unused);
    let error = site.fetch("debian-12").await.unwrap_err();
    assert!(error.contains("SHA512SUMS: ") && error.contains("refused"), "{error}");
}

#[tokio::test]
async fn the_list_shows_what_can_be_fetched_and_what_is_stored() {
    let site = Site::with(&disk()).await;
    site.fetch("debian-12").await.unwrap();
    let list = async |words: &[&str]| {
        let words = ["image", "published"].iter().chain(words).map(|word| (*word).to_owned());
        let mut out = Vec::new();
        let ImageCommand::Local(command) = parse(words) else { panic!("not a local command") };
        run(command, &mut out).await.unwrap();
        String::from_utf8(out).unwrap()
    };
    let plain = list(&[]).await;
    let names: Vec<_> = plain.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(
        names,
        ["NAME", "debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04", "rocky-9"]
    );
    assert!(!plain.contains("STORED"));
    let files = site.files().display().to_string();
    let stored = list(&["--files", &files]).await;
    let lines: Vec<_> = stored.lines().collect();
    assert!(lines[0].trim_end().ends_with("STORED"), "{stored}");
    assert!(lines[1].trim_end().ends_with("iB"), "{stored}");
    assert!(lines[2].trim_end().ends_with("debian-13.raw.zst"), "{stored}");
}
