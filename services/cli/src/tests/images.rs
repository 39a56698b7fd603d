//! Images of the server: what commands send, uploads with broken connections, and waiting.

mod server;
mod signatures;

use server::{Images, image};
use tinwright::image::v1 as pb;
use tinwright::image::v1::ImageState;
use tinwright::image::v1::image_source::Source;

const READY: &str = "ready";

/// Returns a directory with a file of these bytes, and the path of the file.
fn file(bytes: &[u8]) -> (tempfile::TempDir, String) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("disk.raw");
    std::fs::write(&path, bytes).unwrap();
    let path = path.display().to_string();
    (place, path)
}

/// Returns the content of a file, which does not repeat itself soon.
fn content(length: u32) -> Vec<u8> {
    (0..length / 4).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

#[tokio::test]
async fn a_file_is_uploaded_and_its_image_printed_when_it_is_ready() {
    let (images, bytes) = (Images::default(), content(1 << 20));
    let (_place, path) = file(&bytes);
    let words = format!(
        "image upload {path} --name debian --family debian-12 --format raw --public --label a=b"
    );
    let (printed, result) = images.run(&words).await;
    assert_eq!(result, Ok(()));
    assert!(printed.contains("debian") && printed.contains(READY), "{printed}");
    assert!(images.uploaded() == bytes);
    let created = images.created();
    let source = created[0].source.clone().unwrap();
    let upload = pb::UploadSource { file_name: "disk.raw".into() };
    assert_eq!(source.source, Some(Source::Upload(upload)));
    assert_eq!((source.format.as_str(), created[0].family.as_str()), ("raw", "debian-12"));
    assert!(created[0].public && created[0].labels["a"] == "b");
    assert_eq!(images.calls(), ["POST 1048576", "HEAD", "PATCH 0", "watch"]);
}

#[tokio::test]
async fn an_upload_goes_on_after_broken_connections() {
    let (images, bytes) = (Images::default(), content(4 << 20));
    let (_place, path) = file(&bytes);
    let words = format!("image upload {path} --name debian");
    let (printed, result) = images.run_through_cuts(&words, &[1 << 20, 1 << 20]).await;
    assert_eq!(result, Ok(()));
    assert!(printed.contains(READY), "{printed}");
    assert!(images.uploaded() == bytes);
    let calls = images.calls();
    let offsets = calls.iter().filter_map(|call| call.strip_prefix("PATCH ")?.parse().ok());
    let offsets: Vec<u32> = offsets.collect();
    assert_eq!((offsets.len(), offsets[0]), (3, 0), "{calls:?}");
    assert!(offsets.is_sorted() && offsets[1] > 0 && offsets[2] > offsets[1], "{calls:?}");
}

#[tokio::test]
async fn a_second_command_goes_on_with_an_interrupted_upload() {
    let bytes = content(1 << 16);
    let images = Images::with(image("debian", ImageState::Uploading), &bytes[..1000]);
    let (_place, path) = file(&bytes);
    let words = format!("image upload {path} --name debian --no-wait");
    assert_eq!(images.run(&words).await.1, Ok(()));
    assert!(images.uploaded() == bytes);
    assert_eq!(images.calls(), ["POST 65536", "HEAD", "PATCH 1000"]);
}

#[tokio::test]
async fn a_name_of_an_image_with_content_is_refused() {
    let images = Images::with(image("debian", ImageState::Ready), &[]);
    let (_place, path) = file(b"content");
    let error = images.run(&format!("image upload {path} --name debian")).await.1.unwrap_err();
    assert!(error.contains("debian exists"), "{error}");
    assert!(images.calls().is_empty());
}

#[tokio::test]
async fn a_refused_upload_is_an_error_at_once() {
    let images = Images::default();
    images.refuse_uploads();
    let (_place, path) = file(b"content");
    let error = images.run(&format!("image upload {path} --name debian")).await.1.unwrap_err();
    assert!(error.starts_with("uploading image debian: the disk is full"), "{error}");
    assert_eq!(images.calls(), ["POST 7"]);
    for (path, text) in [("/", "/: not a regular file"), ("/nowhere", "reading /nowhere: ")] {
        let error = images.run(&format!("image upload {path} --name a")).await.1.unwrap_err();
        assert!(error.starts_with(text), "{error}");
    }
}

#[tokio::test]
async fn an_import_waits_and_fails_with_the_reason() {
    let images = Images::default();
    let words = "image import debian https://images.example/debian.qcow2 --checksum sha256:ab";
    let (printed, result) = images.run(words).await;
    assert_eq!(result, Ok(()));
    assert!(printed.contains(READY), "{printed}");
    let source = images.created()[0].source.clone().unwrap();
    let url = pb::UrlSource { url: "https://images.example/debian.qcow2".into() };
    assert_eq!((source.source, source.checksum.as_str()), (Some(Source::Url(url)), "sha256:ab"));
    let words = "image import bad https://images.example/bad.qcow2";
    let error = images.run(words).await.1.unwrap_err();
    assert!(error.ends_with("image bad failed: no partition table"), "{error}");
    let words = "image import late https://images.example/late.qcow2 --no-wait -o name";
    assert_eq!(images.run(words).await, ("image/late\n".into(), Ok(())));
}

#[tokio::test]
async fn an_import_from_a_registry_has_the_password_of_a_file() {
    let images = Images::default();
    let (_place, path) = file(b"s3cret\n");
    let words = format!(
        "image import disk oci://registry.example:5000/lab/disk:12 --username anna \
         --password-file {path} --architecture arm64 --plain-http --no-wait"
    );
    assert_eq!(images.run(&words).await.1, Ok(()));
    let source = pb::OciSource {
        reference: "registry.example:5000/lab/disk:12".into(),
        architecture: "arm64".into(),
        plain_http: true,
        username: "anna".into(),
        password: "s3cret".into(),
        ..pb::OciSource::default()
    };
    let created = images.created().pop().unwrap();
    assert_eq!(created.source.unwrap().source, Some(Source::Oci(source)));
    let words = "image import other oci://registry.example/disk --no-wait";
    assert_eq!(images.run(words).await.1, Ok(()));
    let reference = "registry.example/disk".into();
    let source = pb::OciSource { reference, ..pb::OciSource::default() };
    let created = images.created().pop().unwrap();
    assert_eq!(created.source.unwrap().source, Some(Source::Oci(source)));
}

#[tokio::test]
async fn options_of_a_registry_are_refused_for_a_url() {
    let images = Images::default();
    let words = "image import a https://images.example/a.raw --architecture arm64";
    let error = images.run(words).await.1.unwrap_err();
    let text = "options of a registry are for oci:// only: https://images.example/a.raw";
    assert_eq!(error, text);
    assert!(images.created().is_empty());
}

#[tokio::test]
async fn a_published_image_gives_name_and_family() {
    let images = Images::default();
    for (words, name, family, published) in [
        ("ubuntu-24.04", "ubuntu-24-04-20", "ubuntu-24-04", "ubuntu-24.04"),
        ("debian-12 --name d1 --family d", "d1", "d", "debian-12"),
    ] {
        let words = format!("image fetch {words} --no-wait");
        assert_eq!(images.run(&words).await.1, Ok(()));
        let created = images.created().pop().unwrap();
        assert!(created.name.starts_with(name), "{}", created.name);
        assert_eq!(created.family, family);
        let architecture = "x86_64".into();
        let source = pb::PublishedSource { name: published.into(), architecture };
        assert_eq!(created.source.unwrap().source, Some(Source::Published(source)));
    }
}

#[tokio::test]
async fn a_list_is_filtered_by_the_server() {
    let images = Images::with(image("debian", ImageState::Ready), &[]);
    let words = "image list --family debian-12 --state ready --name debian --tenant acme";
    let (printed, result) = images.run(words).await;
    assert_eq!(result, Ok(()));
    let header: Vec<_> = printed.lines().next().unwrap().split_whitespace().collect();
    let expected = ["ID", "NAME", "FAMILY", "STATE", "SIZE", "TENANT", "AGE", "REASON"];
    assert!(header.iter().all(|column| expected.contains(column)), "{printed}");
    assert!(printed.contains("1.00 GiB"), "{printed}");
    assert_eq!(images.calls(), ["list debian-12 3 debian acme"]);
}

#[tokio::test]
async fn an_update_sends_what_is_given() {
    let images = Images::with(image("debian", ImageState::Ready), &[]);
    for (words, call) in [
        ("--public true --protect false", "update public,protect at 0: {\"a\": \"1\"}"),
        ("--label b=2 --remove-label a", "update labels at 7: {\"b\": \"2\"}"),
    ] {
        assert_eq!(images.run(&format!("image update debian {words}")).await.1, Ok(()));
        assert_eq!(images.calls(), [call]);
    }
    for (words, text) in
        [("", "nothing to change"), (" --remove-label c", "image debian has no label \"c\"")]
    {
        let error = images.run(&format!("image update debian{words}")).await.1.unwrap_err();
        assert!(error.contains(text), "{error}");
    }
}

#[tokio::test]
async fn the_name_of_a_family_deletes_no_image() {
    let images = Images::with(image("debian", ImageState::Ready), &[]);
    assert!(images.run("image get debian-12").await.0.contains("name: debian"));
    for command in ["delete debian-12", "update debian-12 --public true"] {
        let error = images.run(&format!("image {command}")).await.1.unwrap_err();
        let text = "debian-12 is a family: give the name of one of its images, such as debian";
        assert_eq!(error, text);
    }
    assert_eq!(images.run("image delete debian").await.1, Ok(()));
    assert_eq!(images.calls(), ["delete"]);
    let error = images.run("image delete nothing").await.1.unwrap_err();
    assert!(error.contains("nothing"), "{error}");
}

#[test]
fn an_image_is_uploaded_imported_or_fetched() {
    use clap::Parser as _;
    let parsed = |text: &str| super::Program::try_parse_from(text.split(' ')).map(|_| ());
    for wrong in [
        "image import debian-12",
        "image import debian-12 oci://a.example/x --password-file x",
        "image fetch debian-12 --checksum sha256:ab",
        "image fetch debian-12 --files /srv/images --public",
        "image fetch debian-12 --base-url https://a.example/x",
        "image fetch unknown",
        "image upload a.raw",
        "image upload a.raw --name a --format iso",
        "image published --server http://a.example",
        "image list --files /srv/images",
    ] {
        assert!(parsed(&format!("tinwright {wrong}")).is_err(), "{wrong}");
    }
    assert!(parsed("tinwright image published --files /srv/images").is_ok());
    assert!(parsed("tinwright image list --server http://a.example").is_ok());
}
