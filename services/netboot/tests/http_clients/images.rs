//! Images for virtual media, made by xorriso and read in parts.

use std::path::Path;
use std::process::Command;

use netboot::iso::PLACEHOLDER;
use netboot::site::Iso;

use super::site::{MACHINE, OTHER, Site};

const PATH: &str = "/iso/02-00-00-00-00-01/x.iso";

/// Makes an image with two placeholders, and returns its octets.
fn image(directory: &Path) -> Vec<u8> {
    let tree = tempfile::tempdir().unwrap();
    let placeholder = format!("{PLACEHOLDER}{}", "0".repeat(1024 - PLACEHOLDER.len()));
    for (name, before) in [("grub.cfg", "linux /vmlinuz "), ("isolinux.cfg", "append ")] {
        let text = format!("{before}{placeholder}\ninitrd /initramfs\n");
        std::fs::write(tree.path().join(name), text).unwrap();
    }
    std::fs::write(tree.path().join("vmlinuz"), super::site::loader()).unwrap();
    let to = directory.join("x.iso");
    let mut xorriso = Command::new("xorriso");
    xorriso.args(["-as", "mkisofs", "-quiet", "-o"]).arg(&to).arg(tree.path());
    assert!(xorriso.status().expect("xorriso is installed").success());
    std::fs::read(to).unwrap()
}

async fn site(directory: &Path) -> Site {
    let sources = vec!["127.0.0.12/32".parse().unwrap()];
    let iso = Iso { sources, ..directory.to_owned().into() };
    Site::with(|site| site.serving.iso = Some(iso)).await
}

#[tokio::test]
async fn every_requested_part_equals_that_part_of_the_whole_image() {
    let directory = tempfile::tempdir().unwrap();
    let source = image(directory.path());
    let site = site(directory.path()).await;
    let whole = site.curl("127.0.0.12", &[], PATH).await;
    assert_eq!((whole.status, whole.body.len()), (200, source.len()));
    let changed: Vec<_> = (0..source.len()).filter(|at| source[*at] != whole.body[*at]).collect();
    let (first, last) = (*changed.first().unwrap(), *changed.last().unwrap());
    let text = String::from_utf8_lossy(&whole.body[first..first + 1024]).into_owned();
    assert!(text.contains("worker_id=") && text.contains("boot_token="), "{text}");
    assert!(!whole.body.windows(PLACEHOLDER.len()).any(|part| part == PLACEHOLDER.as_bytes()));
    let head = site.curl(MACHINE, &["-I"], PATH).await;
    assert_eq!(head.header("content-length"), source.len().to_string());
    assert_eq!(head.header("etag"), whole.header("etag"));
    for (from, to) in [
        (first, first),
        (first + 1, first + 5),
        (first + 700, first + 1500),
        (first.saturating_sub(3), first + 2),
        (last - 10, last + 10),
        (0, source.len() - 1),
        (source.len() - 5, source.len() - 1),
    ] {
        let part = site.curl("127.0.0.12", &["-r", &format!("{from}-{to}")], PATH).await;
        assert_eq!(part.status, 206);
        assert!(part.body == whole.body[from..=to], "{from}-{to}");
        assert_eq!(part.header("etag"), whole.header("etag"));
    }
}

#[tokio::test]
async fn an_image_is_served_to_the_machine_and_its_bmc_only() {
    let directory = tempfile::tempdir().unwrap();
    let source = image(directory.path());
    let site = site(directory.path()).await;
    let refused = site.curl(OTHER, &[], PATH).await;
    assert_eq!((refused.status, &*refused.text()), (403, "not allowed\n"));
    let beyond = format!("{}-", source.len());
    assert_eq!(site.curl(MACHINE, &["-r", &beyond], PATH).await.status, 416);
    let old = ["-r", "0-9", "-H", "If-Range: \"old\""];
    assert_eq!(site.curl(MACHINE, &old, PATH).await.status, 200);
    for none in ["/iso/02-00-00-00-00-01/y.iso", "/iso/02-00-00-00-00-01/x.img"] {
        assert_eq!(site.curl(MACHINE, &[], none).await.status, 404, "{none}");
    }
}

#[tokio::test]
async fn a_replaced_image_is_scanned_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = image(directory.path());
    let site = site(directory.path()).await;
    let old = site.curl(MACHINE, &["-I"], PATH).await.header("etag");
    std::fs::write(directory.path().join("x.iso"), "no placeholder").unwrap();
    assert_eq!(site.curl(MACHINE, &[], PATH).await.status, 500);
    source[0] ^= 1;
    std::fs::write(directory.path().join("x.iso"), source).unwrap();
    let new = site.curl(MACHINE, &["-I"], PATH).await;
    assert!(new.status == 200 && new.header("etag") != old);
}
